/* For ports: Linux' own <string.h>, with strdupa() whatever standard is asked for. Licence: MIT OR Apache-2.0. */

#ifndef _COMPAT_STRING_H
#define _COMPAT_STRING_H

#pragma GCC system_header
#include_next <string.h>

#ifndef strdupa
#define strdupa(text)                                                                                   \
    (__extension__({                                                                                    \
        const char *_compat_text = (text);                                                              \
        size_t _compat_bytes = strlen(_compat_text) + 1;                                                \
        (char *)memcpy(__builtin_alloca(_compat_bytes), _compat_text, _compat_bytes);                   \
    }))
#endif

#endif
