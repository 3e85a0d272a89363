/* blocks(n) for Lua. */
#include <lauxlib.h>
#include <lua.h>
#include "../blocks/zoo.h"

static int blocks(lua_State *lua) {
    lua_pushinteger(lua, zoo_blocks((long)luaL_checkinteger(lua, 1)));
    return 1;
}

int luaopen_zoo(lua_State *lua) {
    lua_pushcfunction(lua, blocks);
    return 1;
}
