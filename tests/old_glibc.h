/* Takes back what glibc has added since 2.12, and Linux since 2.6.32, for tests/old_python.sh: gcc includes this first,
   and then the headers that define these names no more. Python's configure asks for functions; these are the macros. */
#define _GNU_SOURCE 1
#include <fcntl.h>
#include <linux/fs.h>
#include <netinet/tcp.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <linux/wait.h> /* after <sys/wait.h>, an enum of whose names it defines */
#undef CLOCK_BOOTTIME
#undef CLOCK_TAI
#undef F_ADD_SEALS
#undef F_GET_SEALS
#undef F_OFD_GETLK
#undef F_OFD_SETLK
#undef F_OFD_SETLKW
#undef O_PATH
#undef O_TMPFILE
#undef POSIX_SPAWN_SETSID
#undef P_PIDFD
#undef SEEK_DATA
#undef SEEK_HOLE
#undef SO_INCOMING_CPU
#undef SO_REUSEPORT
#undef TCP_USER_TIMEOUT
#undef __NR_pidfd_open
#undef __NR_pidfd_send_signal
