/* A native addon for node: take(n) allocates n bytes, which are never freed. */
#include <node_api.h>
#include <stdlib.h>

static void *volatile kept;

__attribute__((noinline)) void addon_takes(size_t bytes) {
    kept = malloc(bytes); /* line: addon */
    __asm__ volatile("" ::: "memory");
}

static napi_value take(napi_env env, napi_callback_info info) {
    size_t count = 1;
    napi_value argument;
    uint32_t bytes = 0;
    napi_get_cb_info(env, info, &count, &argument, NULL, NULL);
    napi_get_value_uint32(env, argument, &bytes);
    addon_takes(bytes);
    return NULL;
}

NAPI_MODULE_INIT() {
    napi_value function;
    napi_create_function(env, "take", NAPI_AUTO_LENGTH, take, NULL, &function);
    napi_set_named_property(env, exports, "take", function);
    return exports;
}
