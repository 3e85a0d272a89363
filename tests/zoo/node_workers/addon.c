/* blocks(n) for node. */
#include <node_api.h>
#include "../blocks/zoo.h"

static napi_value blocks(napi_env environment, napi_callback_info info) {
    size_t count = 1;
    napi_value argument, result;
    int64_t wanted = 0;
    napi_get_cb_info(environment, info, &count, &argument, NULL, NULL);
    napi_get_value_int64(environment, argument, &wanted);
    napi_create_int64(environment, zoo_blocks(wanted), &result);
    return result;
}

NAPI_MODULE_INIT() {
    napi_value function;
    napi_create_function(env, "blocks", NAPI_AUTO_LENGTH, blocks, NULL, &function);
    napi_set_named_property(env, exports, "blocks", function);
    return exports;
}
