/* blocks n for OCaml. It releases the runtime lock, so other threads run meanwhile. */
#include <caml/mlvalues.h>
#include <caml/threads.h>
long zoo_blocks(long count);

value zoo_caml_blocks(value count) {
    long wanted = Long_val(count);
    caml_release_runtime_system();
    long done = zoo_blocks(wanted);
    caml_acquire_runtime_system();
    return Val_long(done);
}
