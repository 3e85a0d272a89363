/* A node addon whose memory comes from mimalloc: `work()` allocates 1,000 blocks of 9001 bytes, resizes each to 9002 bytes, and frees all but 10. */
#include <mimalloc.h>
#include <node_api.h>

static napi_value work(napi_env env, napi_callback_info info) {
    (void)info;
    for (int i = 0; i < 1000; i++) {
        void *block = mi_realloc(mi_malloc(9001), 9002);
        if (i % 100) mi_free(block);
    }
    napi_value result;
    napi_create_uint32(env, 1000, &result);
    return result;
}

NAPI_MODULE_INIT() {
    napi_value function;
    napi_create_function(env, "work", NAPI_AUTO_LENGTH, work, NULL, &function);
    napi_set_named_property(env, exports, "work", function);
    return exports;
}
