/* For ports: the class of fixed priorities, after Solaris' <sys/fxpriocntl.h>. Licence: MIT OR Apache-2.0. */

#ifndef _COMPAT_SYS_FXPRIOCNTL_H
#define _COMPAT_SYS_FXPRIOCNTL_H

#include <libcpc.h>
#include <sys/priocntl.h>

typedef struct fxparms {
    pri_t fx_upri;
    pri_t fx_uprilim;
    uint_t fx_tqsecs;
    int fx_tqnsecs;
} fxparms_t;

typedef struct fxinfo {
    pri_t fx_maxupri;
} fxinfo_t;

#define FX_NOCHANGE (-32768)
#define FX_TQINF    (-2)
#define FX_TQDEF    (-3)

#endif
