/*
 * For ports: what commands that use libcpc include beside <libcpc.h>. Ours has the one name they need.
 * Licence: MIT OR Apache-2.0.
 */

#ifndef _COMPAT_LIBCPC_IMPL_H
#define _COMPAT_LIBCPC_IMPL_H

#include <libcpc.h>

/* The title of the column of cpc_buf_tick(). */
#define CPC_TICKREG_NAME "tsc"

#endif
