/* For ports: sets of processors, after Solaris' <sys/pset.h>. Licence: MIT OR Apache-2.0. */

#ifndef _COMPAT_SYS_PSET_H
#define _COMPAT_SYS_PSET_H

#include <errno.h>
#include <stddef.h>
#include <sys/processor.h>

typedef int psetid_t;

#define PS_NONE  (-1)
#define PS_QUERY (-2)
#define PS_MYID  (-3)

/* Linux has cpusets, which are files: to a program every processor is in no set. */
static inline int pset_bind(psetid_t set, idtype_t type, id_t id, psetid_t *before)
{
    (void)type, (void)id;
    if (before != NULL)
        *before = PS_NONE;
    if (set == PS_NONE || set == PS_QUERY)
        return 0;
    errno = EINVAL;
    return -1;
}

/* A processor is in no set, and cannot be put into one. */
static inline int pset_assign(psetid_t set, processorid_t id, psetid_t *before)
{
    if (p_online(id, P_STATUS) == -1)
        return -1;
    if (before != NULL)
        *before = PS_NONE;
    if (set == PS_NONE || set == PS_QUERY)
        return 0;
    errno = EINVAL;
    return -1;
}

#endif
