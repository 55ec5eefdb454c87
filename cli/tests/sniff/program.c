// What the tests of `nvabi sniff` watch: calls on terminals, from threads, children and other programs.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define GET_NUMBER 0x80045430u // TIOCGPTN
#define UNKNOWN 0xc0084e7fu    // eight bytes, and no terminal knows it

static int terminal(void) {
    int fd = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (fd < 0) _exit(40);
    return fd;
}

static void number(int fd) {
    unsigned number = 0xffffffff;
    if (ioctl(fd, GET_NUMBER, &number) != 0 || number == 0xffffffff) _exit(41);
}

static void unknown(int fd) {
    unsigned char bytes[8] = {1, 2, 3};
    if (ioctl(fd, UNKNOWN, bytes) != -1 || errno != ENOTTY) _exit(42);
}

static void *calls(void *fd) {
    for (int i = 0; i < 50; i++) number(*(int *)fd);
    return NULL;
}

static void hand(int socket, int fd) {
    char byte = 0;
    struct iovec part = {&byte, 1};
    union { char room[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } control = {0};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1,
                             .msg_control = control.room, .msg_controllen = sizeof(control.room)};
    struct cmsghdr *header;
    if (fd < 0) {
        if (recvmsg(socket, &message, 0) != 1) _exit(43);
        header = CMSG_FIRSTHDR(&message);
        memcpy(&fd, CMSG_DATA(header), sizeof(fd));
        number(fd);
        return;
    }
    header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &fd, sizeof(fd));
    if (sendmsg(socket, &message, 0) != 1) _exit(44);
}

static int status_of(pid_t child) {
    int status;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void stopped(pid_t child) {
    int status;
    if (waitpid(child, &status, WUNTRACED) != child || !WIFSTOPPED(status)) _exit(45);
    kill(child, SIGCONT);
}

// Begins a program under a filter.
static int under(struct sock_filter *filter, unsigned short length, char **program) {
    struct sock_fprog all = {length, filter};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all)) return 47;
    execv(program[0], program);
    return 48;
}

// Begins a program that may not make a system call.
static int without(unsigned call, char **program) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    return under(filter, sizeof(filter) / sizeof(*filter), program);
}

// Begins a program that may have no filter.
static int without_filters(char **program) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_seccomp, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PR_SET_SECCOMP, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    return under(filter, sizeof(filter) / sizeof(*filter), program);
}

// Opened by paths that are not its own, and asked once each.
static void opened(int fd) {
    if (fd < 0) _exit(51);
    number(fd);
    close(fd);
}

static int opens(const char *folder) {
    struct open_how how = {.flags = O_RDWR | O_NOCTTY};
    int flags = O_RDWR | O_NOCTTY;
    char link[4000], long_path[4096] = "";
    if (chdir(folder)) return 1;
    if (symlink("/dev/ptmx", "link") || symlink("/dev", "folder") || symlink("/dev/none", "dangling")) return 2;
    snprintf(link, sizeof(link), "%s/link", folder);
    opened(open("link", flags));
    opened(open(link, flags));
    opened(open("folder/ptmx", flags));
    opened((int)syscall(SYS_openat2, AT_FDCWD, link, &how, sizeof(how)));
    for (int i = 0; i < 400; i++) strcat(long_path, "/dev/..");
    strcat(long_path, "/dev/ptmx");
    opened(open(long_path, flags));
    opened(open("/dev/../dev/./ptmx", flags));
    opened(open("/dev//ptmx", flags));
    int dev = open("/dev", O_RDONLY | O_DIRECTORY);
    opened(openat(dev, "ptmx", flags));
    opened((int)syscall(SYS_openat2, dev, "ptmx", &how, sizeof(how)));
    // What is refused is told as well, and what is not there is nothing.
    if (open("link", O_RDONLY | O_DIRECTORY) >= 0 || open("dangling", O_RDONLY) >= 0) return 3;
    if (chdir("/dev")) return 4;
    opened(open("ptmx", flags));
    opened(open("./ptmx", flags));
    return 0;
}

// A device under another name.
static int elsewhere(const char *path) {
    close(open(path, O_WRONLY | O_CREAT, 0600));
    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL)) return 52;
    if (mount("/dev/zero", path, NULL, MS_BIND, NULL)) return 52;
    int fd = open(path, O_RDWR);
    unknown(fd);
    close(fd);
    return 0;
}

// Every way to have a descriptor that was not opened here.
static int given(char **words) {
    int fd = terminal(), sockets[2];
    int copy = dup(fd);
    number(copy);
    if (dup2(fd, 100) != 100 || dup3(fd, 101, O_CLOEXEC) != 101) return 1;
    number(100);
    number(101);
    number(fcntl(fd, F_DUPFD, 200));
    number(fcntl(fd, F_DUPFD_CLOEXEC, 300));
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets)) return 2;
    pid_t child = fork();
    if (child == 0) {
        // It has the descriptor, which is another's here: taken from it below.
        char byte;
        if (fcntl(fd, F_DUPFD, 400) != 400) _exit(1);
        _exit(read(sockets[1], &byte, 1) != 1);
    }
    int process = (int)syscall(SYS_pidfd_open, child, 0);
    int taken = -1;
    for (int i = 0; i < 1000 && taken < 0; i++) {
        taken = (int)syscall(SYS_pidfd_getfd, process, 400, 0);
        if (taken < 0) usleep(1000);
    }
    if (taken < 0) return 3;
    number(taken);
    if (write(sockets[0], "", 1) != 1 || status_of(child) != 0) return 4;
    child = fork();
    if (child == 0) {
        for (int i = 0; i < 512; i++) if (i != sockets[1]) close(i);
        hand(sockets[1], -1);
        _exit(0);
    }
    hand(sockets[0], fd);
    if (status_of(child) != 0) return 5;
    char text[16];
    snprintf(text, sizeof(text), "%d", 200);
    execl("/proc/self/exe", words[0], "inherited", text, NULL);
    return 6;
}

static void *replace(void *name) {
    usleep(200000);
    execl("/proc/self/exe", name, "none", "0", NULL);
    _exit(49);
}

static volatile sig_atomic_t seen;
static void handler(int signal) { seen = signal; }

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "";
    if (!strcmp(what, "basic")) {
        int fd = terminal();
        number(fd);
        unknown(fd);
        if (ioctl(999, GET_NUMBER, NULL) != -1) return 1;
        close(fd);
        puts("the program's own words");
        return 3;
    }
    if (!strcmp(what, "threads")) {
        int fd = terminal();
        pthread_t threads[4];
        for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, calls, &fd);
        for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
        return 0;
    }
    if (!strcmp(what, "family")) {
        // A child by fork, with the descriptor under another number.
        int fd = terminal();
        int other = dup(fd);
        pid_t child = fork();
        if (child == 0) {
            close(fd);
            number(other);
            _exit(0);
        }
        if (status_of(child) != 0) return 1;
        // One that gets it over a socket.
        int sockets[2];
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets)) return 2;
        child = fork();
        if (child == 0) {
            close(fd);
            close(other);
            hand(sockets[1], -1);
            _exit(0);
        }
        hand(sockets[0], fd);
        if (status_of(child) != 0) return 3;
        // Another program, which has the duplicate but not the first, as that was to be closed.
        child = vfork();
        if (child == 0) {
            char text[16];
            snprintf(text, sizeof(text), "%d", other);
            execl("/proc/self/exe", words[0], "inherited", text, NULL);
            _exit(46);
        }
        return status_of(child);
    }
    if (!strcmp(what, "inherited")) {
        number(atoi(words[2]));
        return 7;
    }
    if (!strcmp(what, "opens")) return opens(words[2]);
    if (!strcmp(what, "two-files")) {
        int one = open(words[2], O_RDONLY), two = open(words[3], O_RDONLY);
        unknown(one);
        unknown(two);
        unknown(two);
        return 0;
    }
    if (!strcmp(what, "elsewhere")) return elsewhere(words[2]);
    if (!strcmp(what, "given")) return given(words);
    if (!strcmp(what, "signals")) {
        // A stop and a continuation of a child; a handler; an interrupted sleep; a signal as the end.
        pid_t child = fork();
        if (child == 0) {
            raise(SIGSTOP);
            _exit(5);
        }
        stopped(child);
        if (status_of(child) != 5) return 1;
        signal(SIGUSR1, handler);
        raise(SIGUSR1);
        if (seen != SIGUSR1) return 2;
        struct sigaction action = {.sa_handler = handler};
        sigaction(SIGRTMIN + 1, &action, NULL);
        seen = 0;
        raise(SIGRTMIN + 1);
        if (seen != SIGRTMIN + 1) return 3;
        signal(SIGALRM, handler);
        alarm(1);
        if (pause() != -1 || errno != EINTR) return 4;
        number(terminal());
        raise(SIGTERM);
        return 6;
    }
    if (!strcmp(what, "replaced")) {
        // A call that waits, and another thread that begins another program meanwhile.
        pthread_t thread;
        pthread_create(&thread, NULL, replace, words[0]);
        open(words[2], O_RDONLY);
        return 1;
    }
    if (!strcmp(what, "pipe")) {
        // Nobody reads it: a signal is the end.
        int ends[2];
        if (pipe(ends)) return 1;
        close(ends[0]);
        return write(ends[1], "", 1) < 0 ? 2 : 3;
    }
    if (!strcmp(what, "leave")) {
        // A child stays, of which a thread alone makes calls.
        int fd = terminal();
        pid_t parent = getpid();
        if (fork()) return 0;
        while (getppid() == parent) usleep(1000);
        pthread_t thread;
        pthread_create(&thread, NULL, calls, &fd);
        pthread_join(thread, NULL);
        printf("%d\n", getpid());
        fflush(stdout);
        pause();
        return 0;
    }
    if (!strcmp(what, "wait")) {
        number(terminal());
        printf("%d\n", getpid());
        fflush(stdout);
        pause();
        return 0;
    }
    if (!strcmp(what, "without-ptrace")) return without(SYS_ptrace, words + 2);
    if (!strcmp(what, "without-seccomp")) return without(SYS_seccomp, words + 2);
    if (!strcmp(what, "without-filters")) return without_filters(words + 2);
    if (!strcmp(what, "calls")) {
        int fd = terminal();
        for (int i = atoi(words[2]); i > 0; i--) number(fd);
        return 0;
    }
    if (!strcmp(what, "other")) {
        // Calls on a file that is of no interest.
        int fd = open("/dev/null", O_RDWR);
        for (int i = atoi(words[2]); i > 0; i--) ioctl(fd, GET_NUMBER, NULL);
        return 0;
    }
    if (!strcmp(what, "opened")) {
        // Files that are of no interest.
        for (int i = atoi(words[2]); i > 0; i--) close(open("/dev/null", O_RDWR));
        return 0;
    }
    if (!strcmp(what, "terminals")) {
        // What a library asks of any file.
        int fd = open("/dev/null", O_RDWR), bytes;
        for (int i = atoi(words[2]); i > 0; i--) ioctl(fd, FIONREAD, &bytes);
        return 0;
    }
    if (!strcmp(what, "none")) {
        for (int i = atoi(words[2]); i > 0; i--) getppid();
        return 0;
    }
    return 50;
}
