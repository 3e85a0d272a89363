/* blocks(N) for Erlang. */
#include <erl_nif.h>
#include "../blocks/zoo.h"

static ERL_NIF_TERM blocks(ErlNifEnv *environment, int count, const ERL_NIF_TERM arguments[]) {
    long wanted;
    if (count != 1 || !enif_get_long(environment, arguments[0], &wanted))
        return enif_make_badarg(environment);
    return enif_make_long(environment, zoo_blocks(wanted));
}

static ErlNifFunc functions[] = {{"blocks", 1, blocks, 0}};
ERL_NIF_INIT(zoo, functions, NULL, NULL, NULL, NULL)
