/* For ports: ioctl(), which Solaris declares here. Licence: MIT OR Apache-2.0. */

#ifndef _COMPAT_STROPTS_H
#define _COMPAT_STROPTS_H

#include <sys/ioctl.h>

#endif
