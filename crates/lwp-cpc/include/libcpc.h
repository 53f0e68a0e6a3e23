/*
 * libcpc: CPU performance counters, with the interface of Solaris' library of that name.
 *
 * Licence: MIT OR Apache-2.0. The manual pages cpc(3CPC) and after describe the functions.
 */

#ifndef _LIBCPC_H
#define _LIBCPC_H

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>
#include <ucontext.h>

/*
 * Types Linux lacks. A port that has them from elsewhere defines _LIBCPC_NO_TYPES.
 */
#ifndef _LIBCPC_NO_TYPES
typedef unsigned int uint_t;
typedef long long hrtime_t; /* nanoseconds */
typedef int processorid_t;
#endif
#if defined(__GLIBC__) && !defined(__id_t_defined)
typedef __id_t id_t; /* hidden by a strict standard */
#define __id_t_defined
#endif

#if defined(__has_include)
#if __has_include(<libpctx.h>)
#include <libpctx.h>
#define _LIBCPC_HAS_PCTX
#endif
#endif
#ifndef _LIBCPC_HAS_PCTX
typedef struct __pctx pctx_t;
#endif

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Overflows are signalled by SIGEMT, which Linux has on no x86. SIGSTKFLT takes its place: it is a
 * constant, and the kernel never raises it. (16 where a strict standard hides the name.)
 */
#ifndef SIGEMT
#define SIGEMT 16
#endif
#define EMT_CPCOVF 1 /* si_code of that signal */

/* Version of the interface, for cpc_open(). */
#define CPC_VER_NONE    0
#define CPC_VER_CURRENT 2

/* Request flags. */
#define CPC_OVF_NOTIFY_EMT 0x1
#define CPC_COUNT_USER     0x2
#define CPC_COUNT_SYSTEM   0x4
#define CPC_COUNT_HV       0x8

/* Flag of cpc_bind_curlwp(). */
#define CPC_BIND_LWP_INHERIT 0x1

/* Capabilities. */
#define CPC_CAP_OVERFLOW_INTERRUPT 0x1
#define CPC_CAP_OVERFLOW_PRECISE   0x2

/* Limits. */
#define CPC_MAX_EVENT_LEN 512
#define CPC_MAX_ATTR_LEN  32
#define CPC_MAX_IMPL_NAME 512
#define CPC_MAX_CPUREF    1024

/* What an error handler is told beside errno. */
#define CPC_INVALID_EVENT           1
#define CPC_INVALID_PICNUM          2
#define CPC_INVALID_ATTRIBUTE       3
#define CPC_ATTRIBUTE_OUT_OF_RANGE  4
#define CPC_RESOURCE_UNAVAIL        5
#define CPC_PIC_NOT_CAPABLE         6
#define CPC_REQ_INVALID_FLAGS       7
#define CPC_CONFLICTING_REQS        8
#define CPC_ATTR_REQUIRES_PRIVILEGE 9
#define CPC_PBIND_FAILED            10
#define CPC_HV_NO_ACCESS            11

/*
 * Records (SMPL). The names are those of later systems; the numbers are this library's choice, because
 * no public document has them.
 */
#define CPC_VER_CPC_ONLY    0x10002 /* never SMPL */
#define CPC_CAP_SMPL        0x4
#define CPC_HW_SMPL         0x10 /* request flag: collect records */
#define CPC_TARGET_CPC      1    /* events that can be counted */
#define CPC_TARGET_SMPL     2    /* events that can be recorded */
#define SMPL_REC_ITEM_PC    (-1)
#define SMPL_REC_ITEM_DLINA (-2)
#define SMPL_REC_ITEM_LAT   (-3)
#define SMPL_REC_ITEM_DSRC  (-4)

typedef struct __cpc cpc_t;
typedef struct __cpc_set cpc_set_t;
typedef struct __cpc_buf cpc_buf_t;

typedef struct {
    char *ca_name;
    uint64_t ca_val;
} cpc_attr_t;

typedef void(cpc_errhndlr_t)(const char *__fn, int __subcode, const char *__fmt, va_list __ap);

/*
 * Any thread may call these functions, with objects that others use too. But no handle, set or buffer
 * may be closed or destroyed while a call in another thread uses it: the caller sees to that.
 */

/* Handles. */
extern cpc_t *cpc_open(int __ver);
extern int cpc_close(cpc_t *__cpc);
extern int cpc_seterrhndlr(cpc_t *__cpc, cpc_errhndlr_t *__fn);

/* What there is to count. */
extern uint_t cpc_npic(cpc_t *__cpc);
extern uint_t cpc_caps(cpc_t *__cpc);
extern const char *cpc_cciname(cpc_t *__cpc);
extern const char *cpc_cpuref(cpc_t *__cpc);
extern void cpc_walk_events_all(cpc_t *__cpc, void *__arg,
                                void (*__action)(void *__arg, const char *__event));
extern void cpc_walk_generic_events_all(cpc_t *__cpc, void *__arg,
                                        void (*__action)(void *__arg, const char *__event));
extern void cpc_walk_events_pic(cpc_t *__cpc, uint_t __picno, void *__arg,
                                void (*__action)(void *__arg, uint_t __picno,
                                                 const char *__event));
extern void cpc_walk_generic_events_pic(cpc_t *__cpc, uint_t __picno, void *__arg,
                                        void (*__action)(void *__arg, uint_t __picno,
                                                         const char *__event));
extern void cpc_walk_attrs(cpc_t *__cpc, void *__arg,
                           void (*__action)(void *__arg, const char *__attr));

/* Sets. */
extern cpc_set_t *cpc_set_create(cpc_t *__cpc);
extern int cpc_set_destroy(cpc_t *__cpc, cpc_set_t *__set);
extern int cpc_set_add_request(cpc_t *__cpc, cpc_set_t *__set, const char *__event,
                               uint64_t __preset, uint_t __flags, uint_t __nattrs,
                               const cpc_attr_t *__attrs);
extern void cpc_walk_requests(cpc_t *__cpc, cpc_set_t *__set, void *__arg,
                              void (*__action)(void *__arg, int __index, const char *__event,
                                               uint64_t __preset, uint_t __flags, int __nattrs,
                                               const cpc_attr_t *__attrs));

/* Binding. */
extern int cpc_bind_curlwp(cpc_t *__cpc, cpc_set_t *__set, uint_t __flags);
extern int cpc_bind_pctx(cpc_t *__cpc, pctx_t *__pctx, id_t __id, cpc_set_t *__set,
                         uint_t __flags);
extern int cpc_bind_cpu(cpc_t *__cpc, processorid_t __id, cpc_set_t *__set, uint_t __flags);
extern int cpc_unbind(cpc_t *__cpc, cpc_set_t *__set);
extern int cpc_request_preset(cpc_t *__cpc, int __index, uint64_t __preset);
extern int cpc_set_restart(cpc_t *__cpc, cpc_set_t *__set);
extern int cpc_enable(cpc_t *__cpc);
extern int cpc_disable(cpc_t *__cpc);
extern void cpc_terminate(cpc_t *__cpc);

/* Buffers. */
extern cpc_buf_t *cpc_buf_create(cpc_t *__cpc, cpc_set_t *__set);
extern int cpc_buf_destroy(cpc_t *__cpc, cpc_buf_t *__buf);
extern int cpc_set_sample(cpc_t *__cpc, cpc_set_t *__set, cpc_buf_t *__buf);
extern int cpc_buf_get(cpc_t *__cpc, cpc_buf_t *__buf, int __index, uint64_t *__val);
extern int cpc_buf_set(cpc_t *__cpc, cpc_buf_t *__buf, int __index, uint64_t __val);
extern hrtime_t cpc_buf_hrtime(cpc_t *__cpc, cpc_buf_t *__buf);
extern uint64_t cpc_buf_tick(cpc_t *__cpc, cpc_buf_t *__buf);
extern void cpc_buf_sub(cpc_t *__cpc, cpc_buf_t *__ds, cpc_buf_t *__a, cpc_buf_t *__b);
extern void cpc_buf_add(cpc_t *__cpc, cpc_buf_t *__ds, cpc_buf_t *__a, cpc_buf_t *__b);
extern void cpc_buf_copy(cpc_t *__cpc, cpc_buf_t *__ds, cpc_buf_t *__src);
extern void cpc_buf_zero(cpc_t *__cpc, cpc_buf_t *__buf);

/* Records. */
extern uint_t cpc_smpl_npic(cpc_t *__cpc);
extern const char *cpc_smpl_iname(cpc_t *__cpc);
extern void cpc_walk_events_all_common(cpc_t *__cpc, void *__arg, int __target,
                                       void (*__action)(void *__arg, const char *__event));
extern void cpc_walk_events_pic_common(cpc_t *__cpc, uint_t __picno, void *__arg, int __target,
                                       void (*__action)(void *__arg, uint_t __picno,
                                                        const char *__event));
extern void cpc_walk_attrs_common(cpc_t *__cpc, void *__arg, int __target,
                                  void (*__action)(void *__arg, const char *__attr));
extern void cpc_walk_smpl_recitems(cpc_t *__cpc, void *__arg,
                                   void (*__action)(void *__arg, const char *__name,
                                                    int __record_item_index));
extern void cpc_walk_smpl_recitems_req(cpc_t *__cpc, cpc_set_t *__set, int __request_index,
                                       void *__arg,
                                       void (*__action)(void *__arg, const char *__name,
                                                        int __record_item_index));
extern int cpc_buf_smpl_rec_count(cpc_t *__cpc, cpc_buf_t *__buf, int __request_index,
                                  uint_t *__rec_count);
extern int cpc_buf_smpl_lost_count(cpc_t *__cpc, cpc_buf_t *__buf, int __request_index,
                                   uint64_t *__lost);
extern int cpc_buf_smpl_get_item(cpc_t *__cpc, cpc_buf_t *__buf, int __request_index,
                                 int __record_index, int __record_item_index, uint64_t *__val);
extern uint64_t *cpc_buf_smpl_get_record(cpc_t *__cpc, cpc_buf_t *__buf, int __request_index,
                                         int __record_index);

/* Names that a programming guide gives to cpc_request_preset() and cpc_set_sample(). */
extern int cpc_set_request_preset(cpc_t *__cpc, cpc_set_t *__set, int __index, uint64_t __preset);
extern int cpc_buf_sample(cpc_t *__cpc, cpc_set_t *__set, cpc_buf_t *__buf);

#ifdef __cplusplus
}
#endif

#endif /* _LIBCPC_H */
