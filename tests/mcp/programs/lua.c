/* Runs a Lua script. */
#include "lauxlib.h"
#include "lualib.h"

int main(int argc, char **argv) {
  lua_State *L = luaL_newstate();
  luaL_openlibs(L);
  int failed = argc < 2 || luaL_dofile(L, argv[1]);
  lua_close(L);
  return failed;
}
