//@ compare: expectation
//@ cflags: -O1
/* What the virtual CPU refuses is refused as by a kernel that has no such thing, after what every kernel checks. */
#include "check.h"
#include <sys/prctl.h>

int main(void)
{
    static char area[64] __attribute__((aligned(64))), selector;
    CHECK(syscall(SYS_rseq, area, 32, 8, 0x53053053) == -1 && errno == EINVAL, "flags (%s)", strerror(errno));
    CHECK(syscall(SYS_rseq, area, 8, 0, 0x53053053) == -1 && errno == EINVAL, "size (%s)", strerror(errno));
    CHECK(syscall(SYS_rseq, area + 1, 32, 0, 0x53053053) == -1 && errno == EINVAL, "address (%s)", strerror(errno));
    CHECK(prctl(59, 1, 0, -1, &selector) == 0 || errno == EINVAL, "user dispatch (%s)", strerror(errno));
    CHECK(prctl(59, 0, 0, 0, 0) == 0 || errno == EINVAL, "user dispatch off (%s)", strerror(errno));
    return done();
}
