// Allocations of a thread while it ends: a thread_local object that holds 503 bytes, and whose destructor frees them and allocates and frees
// 501 bytes; and a pthread key whose destructor allocates 502 bytes and leaks them. The destructor sets the key again, so it runs twice. Each
// thread sets its name first. Three threads run one after the other. Prints "thread ends done".
// Own blocks by malloc: 3 of 501 (0 left), 6 of 502 (6 left), 3 of 503 (0 left).
#include <pthread.h>
#include <cstdlib>
#include "say.h"

static pthread_key_t key;

struct Held {
    void *block = malloc(503);
    ~Held() {
        free(block);
        void *late = malloc(501);
        KEEP(late);
        free(late);
    }
};
static thread_local Held held;

static void key_destructor(void *round) {
    void *leaked = malloc(502);
    KEEP(leaked);
    if (round == reinterpret_cast<void *>(1)) pthread_setspecific(key, reinterpret_cast<void *>(2));
}

static void *work(void *) {
    pthread_setname_np(pthread_self(), "dying-thread");
    pthread_setspecific(key, reinterpret_cast<void *>(1));
    KEEP(held.block);
    return nullptr;
}

int main() {
    pthread_key_create(&key, key_destructor);
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        pthread_create(&thread, nullptr, work, nullptr);
        pthread_join(thread, nullptr);
    }
    say("thread ends done\n");
    return 0;
}
