/* blocks(n) for node, as in tests/zoo/node_workers, but every block comes from mimalloc. Node loads the allocator's library
 * together with this addon, long after the program has started. */
#include <mimalloc.h>
#include <node_api.h>
#include <string.h>

static long make(long count) {
    char *held[8];
    for (long done = 0; done < count;) {
        int now = count - done < 8 ? (int)(count - done) : 8;
        for (int i = 0; i < now; i++) {
            held[i] = mi_malloc(4321);
            memset(held[i], i, 4321);
        }
        for (int i = 0; i < now; i++)
            mi_free(held[i]);
        done += now;
    }
    return count;
}

static napi_value blocks(napi_env environment, napi_callback_info info) {
    size_t count = 1;
    napi_value argument, result;
    int64_t wanted = 0;
    napi_get_cb_info(environment, info, &count, &argument, NULL, NULL);
    napi_get_value_int64(environment, argument, &wanted);
    napi_create_int64(environment, make(wanted), &result);
    return result;
}

NAPI_MODULE_INIT() {
    napi_value function;
    napi_create_function(env, "blocks", NAPI_AUTO_LENGTH, blocks, NULL, &function);
    napi_set_named_property(env, exports, "blocks", function);
    return exports;
}
