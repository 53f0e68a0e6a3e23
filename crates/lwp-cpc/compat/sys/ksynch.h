/* For ports: as <synch.h>. Licence: MIT OR Apache-2.0. */

#ifndef _COMPAT_SYS_KSYNCH_H
#define _COMPAT_SYS_KSYNCH_H

#include <synch.h>

#endif
