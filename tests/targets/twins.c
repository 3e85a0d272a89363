/* Calls the parts that tests/src/twins.rs compiles with it: ENTRIES is CALL(one) CALL(another) ...
   The table PARTS there lists what each part allocates and keeps. Prints nothing. */
struct part {
    void (*make)(void);
    int count;
};

__attribute__((noinline)) static void run(const struct part *part) {
    for (int i = 0; i < part->count; i++) part->make();
}

#define CALL(name) extern const struct part name;
ENTRIES
#undef CALL
#define CALL(name) run(&name);

int main(void) { ENTRIES return 0; }
