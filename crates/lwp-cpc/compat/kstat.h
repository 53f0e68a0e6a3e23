/*
 * For ports: what Solaris' <kstat.h> says of processors, module "cpu_info". Linux has no other of its
 * statistics in this form. Licence: MIT OR Apache-2.0.
 */

#ifndef _COMPAT_KSTAT_H
#define _COMPAT_KSTAT_H

#include <errno.h>
#include <libcpc.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/processor.h>
#include <time.h>
#include <unistd.h>

typedef int kid_t;

#define KSTAT_STRLEN     31
#define KSTAT_TYPE_NAMED 1

/* Types of data. */
#define KSTAT_DATA_CHAR   0
#define KSTAT_DATA_INT32  1
#define KSTAT_DATA_UINT32 2
#define KSTAT_DATA_INT64  3
#define KSTAT_DATA_UINT64 4
#define KSTAT_DATA_STRING 9

typedef struct kstat_named {
    char name[KSTAT_STRLEN];
    unsigned char data_type;
    union {
        char c[16];
        int32_t i32;
        uint32_t ui32;
        int64_t i64;
        uint64_t ui64;
        struct {
            union {
                char *ptr;
                char __pad[8];
            } addr;
            uint32_t len;
        } str;
    } value;
} kstat_named_t;

#define KSTAT_NAMED_STR_PTR(named)    ((named)->value.str.addr.ptr)
#define KSTAT_NAMED_STR_BUFLEN(named) ((named)->value.str.len)

/* What is known of a processor: numbers first, names behind them. */
enum { _COMPAT_CHIP, _COMPAT_CORE, _COMPAT_PACKAGE, _COMPAT_MHZ, _COMPAT_STATE, _COMPAT_BRAND, _COMPAT_DATA };

typedef struct kstat {
    hrtime_t ks_crtime;
    struct kstat *ks_next;
    kid_t ks_kid;
    char ks_module[KSTAT_STRLEN];
    int ks_instance;
    char ks_name[KSTAT_STRLEN];
    unsigned char ks_type;
    char ks_class[KSTAT_STRLEN];
    void *ks_data;
    uint_t ks_ndata;
    size_t ks_data_size;
    hrtime_t ks_snaptime;
    kstat_named_t _compat_data[_COMPAT_DATA];
    char _compat_brand[64];
} kstat_t;

typedef struct kstat_ctl {
    kid_t kc_chain_id;
    kstat_t *kc_chain;
    int kc_kd;
} kstat_ctl_t;

/* The number in a file of the topology of processor `id`; -1 where there is none. */
static inline long _compat_topology(int id, const char *name)
{
    char path[96];
    long value = -1;
    FILE *file;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/%s", id, name);
    file = fopen(path, "r");
    if (file != NULL) {
        if (fscanf(file, "%ld", &value) != 1)
            value = -1;
        fclose(file);
    }
    return value;
}

/* Takes name and clock of processor `id` from /proc/cpuinfo. */
static inline void _compat_describe(int id, kstat_t *kstat)
{
    char line[256];
    long at = -1;
    double mhz;
    FILE *file = fopen("/proc/cpuinfo", "r");
    if (file == NULL)
        return;
    while (fgets(line, sizeof line, file) != NULL) {
        char *value = strchr(line, ':');
        if (value == NULL)
            continue;
        value += strspn(value, ": \t");
        value[strcspn(value, "\n")] = '\0';
        if (strncmp(line, "processor", 9) == 0)
            at = atol(value);
        if (at != id)
            continue;
        if (strncmp(line, "model name", 10) == 0)
            snprintf(kstat->_compat_brand, sizeof kstat->_compat_brand, "%.63s", value);
        if (sscanf(value, "%lf", &mhz) == 1 && strncmp(line, "cpu MHz", 7) == 0)
            kstat->_compat_data[_COMPAT_MHZ].value.i64 = (int64_t)mhz;
    }
    fclose(file);
}

static inline void _compat_named(kstat_named_t *named, const char *name, unsigned char type)
{
    memset(named, 0, sizeof *named);
    snprintf(named->name, sizeof named->name, "%s", name);
    named->data_type = type;
}

/* Brings the data of a processor up to date. */
static inline kid_t kstat_read(kstat_ctl_t *control, kstat_t *kstat, void *copy)
{
    kstat_named_t *data = kstat->_compat_data;
    struct timespec now;
    int state = p_online(kstat->ks_instance, P_STATUS);
    if (state == -1) {
        errno = ENXIO;
        return -1;
    }
    _compat_named(&data[_COMPAT_CHIP], "chip_id", KSTAT_DATA_INT32);
    _compat_named(&data[_COMPAT_CORE], "core_id", KSTAT_DATA_INT32);
    _compat_named(&data[_COMPAT_PACKAGE], "pkg_core_id", KSTAT_DATA_INT32);
    _compat_named(&data[_COMPAT_MHZ], "clock_MHz", KSTAT_DATA_INT64);
    _compat_named(&data[_COMPAT_STATE], "state", KSTAT_DATA_CHAR);
    _compat_named(&data[_COMPAT_BRAND], "brand", KSTAT_DATA_STRING);
    data[_COMPAT_CHIP].value.i32 = (int32_t)_compat_topology(kstat->ks_instance, "physical_package_id");
    data[_COMPAT_CORE].value.i32 = (int32_t)_compat_topology(kstat->ks_instance, "core_id");
    data[_COMPAT_PACKAGE].value.i32 = data[_COMPAT_CORE].value.i32;
    snprintf(data[_COMPAT_STATE].value.c, 16, "%s", state == P_ONLINE ? "on-line" : "off-line");
    kstat->_compat_brand[0] = '\0';
    _compat_describe(kstat->ks_instance, kstat);
    data[_COMPAT_BRAND].value.str.addr.ptr = kstat->_compat_brand;
    data[_COMPAT_BRAND].value.str.len = (uint32_t)strlen(kstat->_compat_brand) + 1;
    kstat->ks_data = data;
    kstat->ks_ndata = _COMPAT_DATA;
    kstat->ks_data_size = sizeof kstat->_compat_data;
    clock_gettime(CLOCK_MONOTONIC, &now);
    kstat->ks_snaptime = (hrtime_t)now.tv_sec * 1000000000 + now.tv_nsec;
    if (copy != NULL)
        memcpy(copy, data, sizeof kstat->_compat_data);
    return control->kc_chain_id;
}

static inline int kstat_close(kstat_ctl_t *control)
{
    while (control->kc_chain != NULL) {
        kstat_t *kstat = control->kc_chain;
        control->kc_chain = kstat->ks_next;
        free(kstat);
    }
    free(control);
    return 0;
}

/* A chain of all processors, by number. */
static inline kstat_ctl_t *kstat_open(void)
{
    kstat_ctl_t *control = (kstat_ctl_t *)calloc(1, sizeof *control);
    kstat_t **end;
    long id, all = sysconf(_SC_NPROCESSORS_CONF);
    if (control == NULL)
        return NULL;
    control->kc_chain_id = 1;
    control->kc_kd = -1;
    end = &control->kc_chain;
    for (id = 0; id < all; id++) {
        kstat_t *kstat = (kstat_t *)calloc(1, sizeof *kstat);
        if (kstat == NULL) {
            kstat_close(control);
            errno = ENOMEM;
            return NULL;
        }
        kstat->ks_kid = (kid_t)id + 1;
        kstat->ks_instance = (int)id;
        kstat->ks_type = KSTAT_TYPE_NAMED;
        snprintf(kstat->ks_module, sizeof kstat->ks_module, "cpu_info");
        snprintf(kstat->ks_name, sizeof kstat->ks_name, "cpu_info%d", (int)id);
        snprintf(kstat->ks_class, sizeof kstat->ks_class, "misc");
        *end = kstat;
        end = &kstat->ks_next;
    }
    return control;
}

/* 0: no processor has come or gone. Their states are read by kstat_read(). */
static inline kid_t kstat_chain_update(kstat_ctl_t *control)
{
    (void)control;
    return 0;
}

/* NULL and -1 stand for any. */
static inline kstat_t *kstat_lookup(kstat_ctl_t *control, const char *module, int instance, const char *name)
{
    kstat_t *kstat;
    for (kstat = control->kc_chain; kstat != NULL; kstat = kstat->ks_next)
        if ((module == NULL || strcmp(module, kstat->ks_module) == 0) &&
            (instance == -1 || instance == kstat->ks_instance) &&
            (name == NULL || strcmp(name, kstat->ks_name) == 0))
            return kstat;
    errno = ENOENT;
    return NULL;
}

static inline void *kstat_data_lookup(kstat_t *kstat, const char *name)
{
    uint_t i;
    for (i = 0; i < kstat->ks_ndata; i++)
        if (strcmp(kstat->_compat_data[i].name, name) == 0)
            return &kstat->_compat_data[i];
    errno = ENOENT;
    return NULL;
}

#endif
