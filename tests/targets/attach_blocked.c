/* Threads that wait in system calls, each in another kind of call, for ever or with a timeout of 100,000 seconds.
 * If a call returns, heaptrack has disturbed it. Prints "ready N" when all N threads are created. For every line on
 * stdin it prints "NAME:ERRNO " for each call that has returned so far, or "none". */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <linux/aio_abi.h>
#include <linux/futex.h>
#include <time.h>
#include <unistd.h>

#define LONG 100000
static const struct timespec far = {LONG, 0};
static int nobody[2], full[2], pair[2], timed[2], stuffed[2], slow[2], given[2], file[2], listening, locked[2], range[2], messages, semaphores, child;
static char fifo[64];
static char block[4096];

static long futex(int *word, const struct timespec *until) {
    return syscall(SYS_futex, word, FUTEX_WAIT, 0, until, NULL, 0);
}

static void k_nanosleep(void) { nanosleep(&far, NULL); }
static void k_clock_nanosleep(void) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += LONG;
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}
static void k_pause(void) { pause(); }
static void k_sigsuspend(void) {
    sigset_t none;
    sigemptyset(&none);
    sigsuspend(&none);
}
static void k_poll(void) { poll(&(struct pollfd){nobody[0], POLLIN, 0}, 1, -1); }
static void k_poll_timeout(void) { poll(&(struct pollfd){nobody[0], POLLIN, 0}, 1, LONG * 1000); }
static void k_ppoll(void) {
    sigset_t all;
    sigfillset(&all);
    ppoll(&(struct pollfd){nobody[0], POLLIN, 0}, 1, &far, &all);
}
static void k_select(void) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(nobody[0], &set);
    select(nobody[0] + 1, &set, NULL, NULL, &(struct timeval){LONG, 0});
}
static void k_pselect(void) {
    fd_set set;
    sigset_t all;
    sigfillset(&all);
    FD_ZERO(&set);
    FD_SET(nobody[0], &set);
    pselect(nobody[0] + 1, &set, NULL, NULL, &far, &all);
}
static int polled(void) {
    int fd = epoll_create1(0);
    epoll_ctl(fd, EPOLL_CTL_ADD, nobody[0], &(struct epoll_event){.events = EPOLLIN});
    return fd;
}
static void k_epoll_wait(void) { epoll_wait(polled(), &(struct epoll_event){0}, 1, -1); }
static void k_epoll_timeout(void) { epoll_wait(polled(), &(struct epoll_event){0}, 1, LONG * 1000); }
static void k_epoll_pwait(void) {
    sigset_t all;
    sigfillset(&all);
    epoll_pwait(polled(), &(struct epoll_event){0}, 1, -1, &all);
}
static void k_futex(void) { futex(&(int){0}, NULL); }
static void k_futex_timeout(void) { futex(&(int){0}, &far); }
static void k_cond_wait(void) {
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
    pthread_mutex_lock(&mutex);
    pthread_cond_wait(&condition, &mutex);
}
static void k_sem_wait(void) {
    sem_t semaphore;
    sem_init(&semaphore, 0, 0);
    sem_wait(&semaphore);
}
static void k_read_pipe(void) { (void)!read(nobody[0], block, 1); }
static void k_write_pipe(void) { (void)!write(full[1], block, sizeof block); }
static void k_read_eventfd(void) { (void)!read(eventfd(0, 0), &(uint64_t){0}, 8); }
static void k_read_timerfd(void) {
    int fd = timerfd_create(CLOCK_MONOTONIC, 0);
    timerfd_settime(fd, 0, &(struct itimerspec){.it_value = far}, NULL);
    (void)!read(fd, &(uint64_t){0}, 8);
}
static void k_read_signalfd(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    (void)!read(signalfd(-1, &set, 0), block, sizeof block);
}
static void k_read_inotify(void) {
    int fd = inotify_init();
    inotify_add_watch(fd, "/", IN_DELETE_SELF);
    (void)!read(fd, block, sizeof block);
}
static void k_open_fifo(void) { (void)!open(fifo, O_RDONLY); }
static void k_accept(void) { accept(listening, NULL, NULL); }
static void k_recv(void) { recv(pair[0], block, 1, 0); }
static void k_recv_timeout(void) { recv(timed[0], block, 1, 0); }
static void k_read_timeout(void) { (void)!read(timed[1], block, 1); }
static void k_recvmsg(void) {
    struct iovec place = {block, 1};
    recvmsg(timed[0], &(struct msghdr){.msg_iov = &place, .msg_iovlen = 1}, 0);
}
static void k_send(void) { send(stuffed[0], block, sizeof block, 0); }
static void k_send_timeout(void) { send(slow[0], block, sizeof block, 0); }
static void k_sendmmsg(void) {
    struct iovec place = {block, sizeof block};
    sendmmsg(slow[0], &(struct mmsghdr){.msg_hdr = {.msg_iov = &place, .msg_iovlen = 1}}, 1, 0);
}
static void k_sendfile(void) { sendfile(slow[0], file[0], &(off_t){0}, sizeof block); }
static void k_splice(void) { splice(given[0], NULL, slow[0], NULL, 1, 0); }
static void k_preadv2(void) { preadv2(timed[0], &(struct iovec){block, 1}, 1, -1, 0); }
static void k_pwritev2(void) { pwritev2(slow[0], &(struct iovec){block, sizeof block}, 1, -1, 0); }
static void k_flock(void) { flock(locked[1], LOCK_EX); }
static void k_fcntl(void) {
    fcntl(range[1], F_OFD_SETLKW, &(struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1});
}
static void k_waitpid(void) { waitpid(child, NULL, 0); }
static void k_waitid(void) { waitid(P_PID, (id_t)child, &(siginfo_t){0}, WEXITED | WNOWAIT); }
static void k_msgrcv(void) { msgrcv(messages, block, 64, 7, 0); }
static void k_semop(void) { semop(semaphores, &(struct sembuf){0, -1, 0}, 1); }
static void k_semtimedop(void) { semtimedop(semaphores, &(struct sembuf){0, -1, 0}, 1, &far); }
static void k_mq_receive(void) {
    char name[64];
    snprintf(name, sizeof name, "/heaptrack-blocked-%d", getpid());
    mqd_t queue = mq_open(name, O_RDWR | O_CREAT, 0600, &(struct mq_attr){.mq_maxmsg = 1, .mq_msgsize = 64});
    mq_unlink(name);
    /* A kernel without message queues has no such call. The thread then waits in pause. */
    if (queue < 0) pause();
    mq_receive(queue, block, 64, NULL);
}
static void wait_signal(const struct timespec *until) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    if (until) sigtimedwait(&set, NULL, until);
    else sigwaitinfo(&set, NULL);
}
static void k_sigwaitinfo(void) { wait_signal(NULL); }
static void k_sigtimedwait(void) { wait_signal(&far); }
static void k_io_getevents(void) {
    aio_context_t context = 0;
    struct io_event event;
    if (syscall(SYS_io_setup, 1, &context) != 0) pause();
    syscall(SYS_io_getevents, context, 1, 1, &event, NULL);
}

static struct kind {
    const char *name;
    void (*run)(void);
    volatile int returned, error;
} kinds[] = {
#define KIND(name) {#name, k_##name, 0, 0}
    KIND(nanosleep), KIND(clock_nanosleep), KIND(pause), KIND(sigsuspend), KIND(poll), KIND(poll_timeout), KIND(ppoll),
    KIND(select), KIND(pselect), KIND(epoll_wait), KIND(epoll_timeout), KIND(epoll_pwait), KIND(futex), KIND(futex_timeout),
    KIND(cond_wait), KIND(sem_wait), KIND(read_pipe), KIND(write_pipe), KIND(read_eventfd), KIND(read_timerfd),
    KIND(read_signalfd), KIND(read_inotify), KIND(open_fifo), KIND(accept), KIND(recv), KIND(recv_timeout), KIND(read_timeout),
    KIND(recvmsg), KIND(send), KIND(send_timeout), KIND(sendmmsg), KIND(sendfile), KIND(splice), KIND(preadv2), KIND(pwritev2), KIND(flock), KIND(fcntl), KIND(waitpid), KIND(waitid), KIND(msgrcv), KIND(semop),
    KIND(semtimedop), KIND(mq_receive), KIND(sigwaitinfo), KIND(sigtimedwait), KIND(io_getevents),
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static void *block_for_ever(void *argument) {
    struct kind *kind = argument;
    errno = 0;
    kind->run();
    kind->error = errno;
    kind->returned = 1;
    for (;;) pause();
    return NULL;
}

static void fill(int fd) {
    fcntl(fd, F_SETFL, O_NONBLOCK);
    while (write(fd, block, sizeof block) > 0) {}
    while (write(fd, block, 1) > 0) {}
    fcntl(fd, F_SETFL, 0);
}

static int temporary(int fds[2]) {
    char path[] = "/tmp/heaptrack-blocked.XXXXXX";
    fds[0] = mkstemp(path);
    fds[1] = open(path, O_RDWR);
    return unlink(path);
}

int main(void) {
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR2);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    if (pipe(nobody) || pipe(full) || pipe(given) || temporary(locked) || temporary(range) || temporary(file)) return 1;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) || socketpair(AF_UNIX, SOCK_STREAM, 0, timed)) return 1;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, stuffed) || socketpair(AF_UNIX, SOCK_STREAM, 0, slow)) return 1;
    setsockopt(slow[0], SOL_SOCKET, SO_SNDTIMEO, &(struct timeval){LONG, 0}, sizeof(struct timeval));
    for (int i = 0; i < 2; i++) setsockopt(timed[i], SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){LONG, 0}, sizeof(struct timeval));
    fill(full[1]);
    fill(stuffed[0]);
    fill(slow[0]);
    if (write(given[1], block, 1) != 1 || write(file[0], block, sizeof block) != sizeof block) return 1;
    flock(locked[0], LOCK_EX);
    fcntl(range[0], F_OFD_SETLK, &(struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1});
    snprintf(fifo, sizeof fifo, "/tmp/heaptrack-blocked.%d", getpid());
    mkfifo(fifo, 0600);
    listening = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path + 1, 64, "heaptrack-blocked-%d", getpid());
    if (bind(listening, (struct sockaddr *)&address, sizeof address) || listen(listening, 1)) return 1;
    messages = msgget(IPC_PRIVATE, 0600);
    semaphores = semget(IPC_PRIVATE, 1, 0600);
    child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) pause();
    }
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 256 << 10);
    for (int i = 0; i < KINDS; i++) {
        pthread_t thread;
        if (pthread_create(&thread, &attributes, block_for_ever, &kinds[i]) != 0) return 1;
    }
    printf("ready %d\n", KINDS);
    fflush(stdout);
    int byte;
    while ((byte = getchar()) != EOF) {
        if (byte != '\n') continue;
        int any = 0;
        for (int i = 0; i < KINDS; i++)
            if (kinds[i].returned) any += printf("%s:%d ", kinds[i].name, kinds[i].error);
        printf("%s\n", any ? "" : "none");
        fflush(stdout);
    }
    unlink(fifo);
    msgctl(messages, IPC_RMID, NULL);
    semctl(semaphores, 0, IPC_RMID);
    kill(child, SIGKILL);
    _exit(0);
}
