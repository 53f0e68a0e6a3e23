/* For ports: scheduling classes, after Solaris' <sys/priocntl.h>. Licence: MIT OR Apache-2.0. */

#ifndef _COMPAT_SYS_PRIOCNTL_H
#define _COMPAT_SYS_PRIOCNTL_H

#include <errno.h>
#include <sys/types.h>
#include <sys/wait.h>

typedef short pri_t;

/* Commands. */
#define PC_GETCID      0
#define PC_GETCLINFO   1
#define PC_SETPARMS    2
#define PC_GETPARMS    3
#define PC_ADMIN       4
#define PC_GETPRIRANGE 5
#define PC_DONICE      6
#define PC_SETXPARMS   7
#define PC_GETXPARMS   8

#define PC_CLNULL   (-1)
#define PC_CLNMSZ   16
#define PC_CLINFOSZ (32 / (int)sizeof(int))
#define PC_CLPARMSZ (32 / (int)sizeof(int))

typedef struct pcinfo {
    id_t pc_cid;
    char pc_clname[PC_CLNMSZ];
    int pc_clinfo[PC_CLINFOSZ];
} pcinfo_t;

typedef struct pcparms {
    id_t pc_cid;
    int pc_clparms[PC_CLPARMSZ];
} pcparms_t;

/* The classes of Solaris are not those of Linux, whose sched_setscheduler(2) is another thing: ENOSYS. A
 * program goes on with the priority that it has. */
static inline long priocntl(idtype_t type, id_t id, int command, ...)
{
    (void)type, (void)id, (void)command;
    errno = ENOSYS;
    return -1;
}

#endif
