/* A runtime that optimises itself: a small compiler for a bytecode machine, which profiles its own generated
 * code through its own ring, compiles it again, and gets faster. In crate lwp it is examples/self_optimizing.
 *
 *     cc -O2 examples/self_optimizing.c $(pkg-config --cflags --libs lwp) -o self_optimizing
 *     lwp run -- ./self_optimizing [INTERVAL [RECORDS [ROUNDS]]]
 *
 * The first version of the code has the blocks in the program's order, and every call of a method looks for
 * it. While it works, the processor writes a record of every INTERVAL-th branch (1000 unless given) and LWPVAL
 * one of every INTERVAL-th method, into a ring of RECORDS (4096). Between two pieces of work, where a runtime
 * has its safepoints, the runtime empties the ring. Once it knows enough, it compiles the second version:
 * likely ways straight ahead, and the usual method inline behind a check. No system call and no signal is
 * involved. In the end both versions are counted, and measured ROUNDS times in turns (15).
 *
 * Exit status: 0 if all went well, 1 if not, and 77 where there is no LWP to learn from. */
#define _GNU_SOURCE
#include <errno.h>
#include <lwp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

enum {
    ITEMS = 1000000,
    COUNTED = 500, /* of them are counted */
    PIECE = 4096,   /* items between two looks into the ring, as long as nothing is lost */
    SMALLEST_PIECE = 64,
    ENOUGH = 64, /* samples of both kinds that make a decision */
    USUAL = 80,  /* a method is the usual one from this many per cent of the samples on */
    NO_LWP = 77
};

static void fail(const char *what)
{
    fprintf(stderr, "self_optimizing: %s\n", what);
    exit(1);
}

/* ---- The machine --------------------------------------------------------------------------------- */

/* Registers are 0 to 3; 0 holds the sum. */
enum op_kind { OP_NEXT, OP_COPY, OP_AND, OP_SHIFT, OP_ADD, OP_SEND };
enum end_kind { END_JUMP, END_EQUAL, END_LESS, END_MORE_ITEMS, END_RETURN };
enum { BLOCKS = 7, METHODS = 4, OPS = 4 };

struct op {
    enum op_kind kind;
    unsigned char to; /* OP_SEND: the register with the method's number */
    int operand;      /* a register or a number */
};

struct block {
    unsigned ops;
    struct op op[OPS];
    enum end_kind end;
    unsigned char reg;
    int number;
    int yes, no; /* END_JUMP leads to yes */
};

static const char *const method_names[METHODS] = {"add", "sub", "xor", "mul"};

/* As a parser would leave it: the exceptions stand where the source names them, in front of the usual case.
 * An item is taken in block 0 alone, where only END_MORE_ITEMS leads: code needs no check against the end. */
static const struct block program[BLOCKS] = {
    {4, {{OP_NEXT, 1, 0}, {OP_COPY, 2, 1}, {OP_AND, 2, 3}, {OP_SHIFT, 1, 2}}, END_EQUAL, 1, 0, 1, 2}, /* empty? */
    {1, {{OP_ADD, 0, 1}}, END_JUMP, 0, 0, 5, 0},
    {0, {{OP_NEXT, 0, 0}}, END_LESS, 1, 16, 3, 4}, /* small? */
    {1, {{OP_ADD, 1, 1000}}, END_JUMP, 0, 0, 4, 0},
    {1, {{OP_SEND, 2, 1}}, END_JUMP, 0, 0, 5, 0},
    {0, {{OP_NEXT, 0, 0}}, END_MORE_ITEMS, 0, 0, 0, 6},
    {0, {{OP_NEXT, 0, 0}}, END_RETURN, 0, 0, 0, 0},
};

static uint64_t below(uint64_t limit)
{
    static uint64_t state = 1;
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (state >> 33) % limit;
}

/* Few items are empty or small, and nearly all have method 2. The compiler does not know that. */
static void make_items(uint64_t *items)
{
    unsigned at;
    for (at = 0; at < ITEMS; at++) {
        uint64_t kind = below(100);
        uint64_t value = kind < 3 ? 0 : kind < 9 ? 1 + below(15) : 16 + below(1 << 20);
        uint64_t method = below(100) < 4 ? below(METHODS) : 2;
        items[at] = value << 2 | method;
    }
}

static uint64_t call(uint64_t method, uint64_t sum, uint64_t value)
{
    return method == 0 ? sum + value : method == 1 ? sum - value : method == 2 ? sum ^ value : sum * value;
}

/* Slow, obvious, and what generated code is compared with. */
static uint64_t interpret(const uint64_t *items, const uint64_t *end, uint64_t sum)
{
    uint64_t reg[4] = {0, 0, 0, 0};
    int at = 0;
    reg[0] = sum;
    for (;;) {
        const struct block *block = &program[at];
        unsigned index;
        int holds;
        for (index = 0; index < block->ops; index++) {
            struct op op = block->op[index];
            switch (op.kind) {
            case OP_NEXT: reg[op.to] = *items++; break;
            case OP_COPY: reg[op.to] = reg[op.operand]; break;
            case OP_AND: reg[op.to] &= (uint64_t)op.operand; break;
            case OP_SHIFT: reg[op.to] >>= op.operand; break;
            case OP_ADD: reg[op.to] += (uint64_t)op.operand; break;
            case OP_SEND: reg[0] = call(reg[op.to], reg[0], reg[op.operand]); break;
            }
        }
        switch (block->end) {
        case END_RETURN: return reg[0];
        case END_EQUAL: holds = (int64_t)reg[block->reg] == block->number; break;
        case END_LESS: holds = (int64_t)reg[block->reg] < block->number; break;
        case END_MORE_ITEMS: holds = items < end; break;
        default: holds = 1;
        }
        at = holds ? block->yes : block->no;
    }
}

/* ---- The compiler -------------------------------------------------------------------------------- */

/* What the compiler is told beside the program. */
struct plan {
    int order[BLOCKS];   /* of the blocks in memory */
    int usual[BLOCKS];   /* the method that the block's send tries first, or -1 */
    int samples_methods; /* with LWPVAL */
};

/* Places that jumps lead to: blocks, what follows a block's send, its way for other methods, its methods. */
enum { SENT = BLOCKS, UNUSUAL = 2 * BLOCKS, METHOD = 3 * BLOCKS, LABELS = METHOD + METHODS * BLOCKS };
enum { BYTES = 4096, JUMPS = 64 };

struct version {
    unsigned char *bytes; /* mapped; written first, executed afterwards, never both at once */
    uint32_t length;
    uint32_t labels[LABELS];
    struct { uint32_t at; int label; } jumps[JUMPS]; /* distances to be filled in */
    int jump_count;
    /* The branch at the end of each block, and whether it goes to yes if it is taken. */
    uint32_t branch[BLOCKS];
    int taken_is_yes[BLOCKS];
};

enum { BELOW = 0x82, EQUAL = 0x84, LESS = 0x8c }; /* jcc; the lowest bit inverts the condition */

static void emit(struct version *version, const char *bytes, size_t count)
{
    if (version->length + count > BYTES)
        fail("the program is too long");
    memcpy(version->bytes + version->length, bytes, count);
    version->length += (uint32_t)count;
}

static void emit_byte(struct version *version, int byte)
{
    char it = (char)byte;
    emit(version, &it, 1);
}

static void emit_number(struct version *version, int number)
{
    emit(version, (const char *)&number, 4);
}

/* jmp, or jcc if there is a condition. */
static void emit_jump(struct version *version, int condition, int label)
{
    emit(version, condition ? "\x0f" : "\xe9", 1);
    if (condition)
        emit_byte(version, condition);
    if (version->jump_count == JUMPS)
        fail("the program has too many branches");
    version->jumps[version->jump_count].at = version->length;
    version->jumps[version->jump_count++].label = label;
    emit_number(version, 0);
}

/* OP REG, NUMBER of the group: 0 add, 4 and, 7 cmp. The machine's registers are r8 to r11. */
static void emit_immediate(struct version *version, int op, int reg, int number)
{
    emit(version, "\x49\x81", 2);
    emit_byte(version, 0xc0 | op << 3 | reg);
    emit_number(version, number);
}

static void emit_method(struct version *version, int method, int value)
{
    static const char simple[3] = {0x01, 0x29, 0x31}; /* add, sub, xor */
    emit(version, "\x4d", 1);
    if (method < 3) {
        emit(version, &simple[method], 1);
        emit_byte(version, 0xc0 | value << 3);
    } else { /* imul r8, VALUE */
        emit(version, "\x0f\xaf", 2);
        emit_byte(version, 0xc0 | value);
    }
}

/* Looks for the method, one after the other. */
static void emit_send(struct version *version, int block, struct op op)
{
    int method;
    for (method = 0; method < METHODS - 1; method++) {
        emit_immediate(version, 7, op.to, method);
        emit_jump(version, EQUAL, METHOD + block * METHODS + method);
    }
    emit_method(version, METHODS - 1, op.operand);
    for (method = 0; method < METHODS - 1; method++) {
        emit_jump(version, 0, SENT + block);
        version->labels[METHOD + block * METHODS + method] = version->length;
        emit_method(version, method, op.operand);
    }
}

static void emit_op(struct version *version, const struct plan *plan, int block, struct op op)
{
    switch (op.kind) {
    case OP_NEXT: /* mov REG, [rdi]; add rdi, 8 */
        emit(version, "\x4c\x8b", 2);
        emit_byte(version, op.to << 3 | 7);
        emit(version, "\x48\x83\xc7\x08", 4);
        break;
    case OP_COPY:
        emit(version, "\x4d\x89", 2);
        emit_byte(version, 0xc0 | op.operand << 3 | op.to);
        break;
    case OP_AND: emit_immediate(version, 4, op.to, op.operand); break;
    case OP_ADD: emit_immediate(version, 0, op.to, op.operand); break;
    case OP_SHIFT:
        emit(version, "\x49\xc1", 2);
        emit_byte(version, 0xe8 | op.to);
        emit_byte(version, op.operand);
        break;
    case OP_SEND:
        if (plan->samples_methods) { /* lwpval METHOD, eREG, BLOCK */
            emit(version, "\x8f\xca", 2);
            emit_byte(version, 0x80 | (~(8 + op.to) & 15) << 3);
            emit_byte(version, 0x12);
            emit_byte(version, 0xc8 | op.to);
            emit_number(version, block);
        }
        if (plan->usual[block] < 0) {
            emit_send(version, block, op);
        } else {
            emit_immediate(version, 7, op.to, plan->usual[block]);
            emit_jump(version, EQUAL ^ 1, UNUSUAL + block);
            emit_method(version, plan->usual[block], op.operand);
        }
        version->labels[SENT + block] = version->length;
        break;
    }
}

/* Ends a block. `next` is the block behind it, which needs no jump. */
static void emit_end(struct version *version, int number, int next)
{
    const struct block *block = &program[number];
    int condition = EQUAL;
    if (block->end == END_RETURN) {
        emit(version, "\x4c\x89\xc0\xc3", 4); /* mov rax, r8; ret */
        return;
    }
    if (block->end == END_JUMP) {
        if (block->yes != next)
            emit_jump(version, 0, block->yes);
        return;
    }
    if (block->end == END_MORE_ITEMS) {
        emit(version, "\x48\x39\xf7", 3); /* cmp rdi, rsi */
        condition = BELOW;
    } else {
        emit_immediate(version, 7, block->reg, block->number);
        if (block->end == END_LESS)
            condition = LESS;
    }
    version->branch[number] = version->length;
    version->taken_is_yes[number] = block->yes != next;
    if (block->yes == next) {
        emit_jump(version, condition ^ 1, block->no);
    } else {
        emit_jump(version, condition, block->yes);
        if (block->no != next)
            emit_jump(version, 0, block->no);
    }
}

static void compile(struct version *version, const struct plan *plan)
{
    int place, jump;
    memset(version, 0, sizeof *version);
    version->bytes = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (version->bytes == MAP_FAILED)
        fail("no memory for code");
    emit(version, "\x49\x89\xd0", 3); /* mov r8, rdx */
    for (place = 0; place < BLOCKS; place++) {
        int number = plan->order[place];
        unsigned op;
        version->labels[number] = version->length;
        for (op = 0; op < program[number].ops; op++)
            emit_op(version, plan, number, program[number].op[op]);
        emit_end(version, number, place + 1 < BLOCKS ? plan->order[place + 1] : -1);
    }
    for (place = 0; place < BLOCKS; place++) /* Out of line: what seldom happens. */
        if (plan->usual[place] >= 0) {
            version->labels[UNUSUAL + place] = version->length;
            emit_send(version, place, program[place].op[0]);
            emit_jump(version, 0, SENT + place);
        }
    for (jump = 0; jump < version->jump_count; jump++) {
        uint32_t at = version->jumps[jump].at;
        uint32_t distance = version->labels[version->jumps[jump].label] - (at + 4);
        memcpy(version->bytes + at, &distance, 4);
    }
    if (mprotect(version->bytes, BYTES, PROT_READ | PROT_EXEC) != 0)
        fail("the system does not let code be executed");
}

/* Adds items, at least one, to `sum` as the program says. */
static uint64_t run(const struct version *version, const uint64_t *items, size_t count, uint64_t sum)
{
    uint64_t (*function)(const uint64_t *, const uint64_t *, uint64_t);
    memcpy(&function, &version->bytes, sizeof function); /* ISO C has no cast for it. */
    return function(items, items + count, sum);
}

/* ---- What records tell --------------------------------------------------------------------------- */

struct knowledge {
    unsigned ways[BLOCKS][2]; /* samples of each block's branch: to no, to yes */
    unsigned methods[BLOCKS][METHODS];
    unsigned branches, values, elsewhere;
    unsigned instructions, taken;
};

/* Learns from a record. Returns 0 if it is of a branch or instruction outside of the code. */
static void learn_from(struct knowledge *knowledge, const struct version *version, const struct lwp_record *record)
{
    uint64_t at = record->instruction_address - (uint64_t)(uintptr_t)version->bytes;
    int block, taken = (record->flags & LWP_BRANCH_TAKEN) != 0;
    if (record->event_id == LWP_EVENT_VALUE_SAMPLE) {
        /* Flags is the immediate of LWPVAL, where the compiler has put the block's number. */
        uint64_t method = record->data2 < METHODS ? record->data2 : METHODS - 1;
        if (record->flags < BLOCKS)
            knowledge->methods[record->flags][method]++;
        knowledge->values++;
    } else if (at >= version->length) {
        knowledge->elsewhere++;
    } else if (record->event_id == LWP_EVENT_INSTRUCTIONS_RETIRED) {
        knowledge->instructions++;
    } else if (record->event_id == LWP_EVENT_BRANCHES_RETIRED) {
        knowledge->branches++;
        knowledge->taken += (unsigned)taken;
        for (block = 0; block < BLOCKS; block++) /* Others are jumps, and the branches of a send. */
            if (version->branch[block] == at)
                knowledge->ways[block][taken == version->taken_is_yes[block]]++;
    }
}

/* Empties the ring once: while this thread reads, its own branches can make new records, without an end if the
 * interval is small. */
static void drain(struct lwp_session *session, struct knowledge *knowledge, const struct version *version)
{
    struct lwp_record records[64];
    ssize_t count = 1, at, left = lwp_capacity(session);
    for (; count > 0 && left > 0; left -= count) {
        count = lwp_read(session, records, left < 64 ? (size_t)left : 64);
        for (at = 0; at < count; at++)
            learn_from(knowledge, version, &records[at]);
    }
}

static int is_placed(const int *order, int count, int block)
{
    while (count-- > 0)
        if (order[count] == block)
            return 1;
    return 0;
}

/* Lays the blocks out as traces: each block is followed by its likeliest successor that has no place yet, so
 * that the likely way is straight ahead. Where a trace ends, the next one begins with the first block left. */
static void decide_order(const struct knowledge *knowledge, int *order)
{
    int first, block, placed = 0;
    for (first = 0; first < BLOCKS; first++)
        for (block = first; block >= 0 && !is_placed(order, placed, block);) {
            const struct block *it = &program[block];
            int likely_yes = knowledge->ways[block][1] > knowledge->ways[block][0];
            int likely = it->end == END_JUMP || likely_yes ? it->yes : it->no;
            int other = it->end == END_JUMP ? it->yes : likely_yes ? it->no : it->yes;
            order[placed++] = block;
            block = it->end == END_RETURN ? -1 : is_placed(order, placed, likely) ? other : likely;
        }
}

static struct plan decide(const struct knowledge *knowledge)
{
    struct plan plan;
    int block, method;
    memset(&plan, 0, sizeof plan);
    decide_order(knowledge, plan.order);
    for (block = 0; block < BLOCKS; block++) {
        const unsigned *samples = knowledge->methods[block];
        unsigned all = 0;
        plan.usual[block] = -1;
        for (method = 0; method < METHODS; method++)
            all += samples[method];
        for (method = 0; method < METHODS; method++)
            if (all != 0 && samples[method] * 100 >= all * USUAL)
                plan.usual[block] = method;
    }
    return plan;
}

/* ---- The runtime --------------------------------------------------------------------------------- */

static uint64_t items[ITEMS];
static uint32_t interval = 1000, ring_records = 4096, rounds = 15;

static struct lwp_session *open_session(const struct lwp_options *options)
{
    struct lwp_session *session = lwp_open(options);
    if (session == NULL || lwp_start(session) != 0)
        fail(lwp_last_error());
    return session;
}

/* A session that samples branches and methods of this thread. */
static struct lwp_session *sample(void)
{
    struct lwp_options options;
    lwp_options_init(&options);
    options.every[LWP_EVENT_BRANCHES_RETIRED] = interval;
    options.every[LWP_EVENT_VALUE_SAMPLE] = interval;
    options.ring_records = ring_records;
    /* Intervals vary, or every sample could be of the same branch of the loop. */
    while (options.random_bits < 4 && interval >> (options.random_bits + 1) != 0)
        options.random_bits++;
    return open_session(&options);
}

/* Work that is done in pieces. */
struct work {
    size_t done, piece;
    uint64_t sum;
};

static int proceed(struct work *work, const struct version *version)
{
    size_t left = ITEMS - work->done, count = left < work->piece ? left : work->piece;
    if (count == 0)
        return 0;
    work->sum = run(version, items + work->done, count, work->sum);
    work->done += count;
    return 1;
}

/* Works until enough is known. */
static void learn(struct work *work, const struct version *version, struct knowledge *knowledge)
{
    struct lwp_session *session = sample();
    uint64_t lost = 0, missed = 0;
    unsigned polls = 0;
    while ((knowledge->branches < ENOUGH || knowledge->values < ENOUGH) && proceed(work, version)) {
        lwp_flush(session);
        drain(session, knowledge, version);
        polls++;
        if (lwp_missed(session, &missed) == 0 && missed > lost) {
            /* The ring was full too soon. What it has is true all the same; look more often. */
            lost = missed;
            work->piece = work->piece / 2 > SMALLEST_PIECE ? work->piece / 2 : SMALLEST_PIECE;
        }
    }
    lwp_close(session);
    printf("learnt from %u branches and %u methods of %zu items, in %u polls; %llu lost, %u of the runtime\n",
           knowledge->branches, knowledge->values, work->done, polls, (unsigned long long)lost,
           knowledge->elsewhere);
}

static void tell(const struct knowledge *knowledge, const struct plan *plan)
{
    int block, method;
    for (block = 0; block < BLOCKS; block++)
        if (program[block].end != END_JUMP && program[block].end != END_RETURN)
            printf("block %d: %u yes, %u no\n", block, knowledge->ways[block][1], knowledge->ways[block][0]);
    for (block = 0; block < BLOCKS; block++)
        if (plan->usual[block] >= 0) {
            printf("methods of block %d:", block);
            for (method = 0; method < METHODS; method++)
                printf(" %u %s", knowledge->methods[block][method], method_names[method]);
            printf("\ninline in block %d: %s\n", block, method_names[plan->usual[block]]);
        }
    printf("order of blocks: [");
    for (block = 0; block < BLOCKS; block++)
        printf("%s%d", block == 0 ? "" : ", ", plan->order[block]);
    printf("]\n");
}

/* Counts code on some items, with a record of everything. */
static struct knowledge count(const struct version *version)
{
    struct knowledge knowledge;
    struct lwp_options options;
    struct lwp_session *session;
    uint64_t missed = 0;
    memset(&knowledge, 0, sizeof knowledge);
    lwp_options_init(&options);
    options.every[LWP_EVENT_INSTRUCTIONS_RETIRED] = 1;
    options.every[LWP_EVENT_BRANCHES_RETIRED] = 1;
    options.every[LWP_EVENT_VALUE_SAMPLE] = 1;
    options.ring_records = 64 * COUNTED;
    session = open_session(&options);
    run(version, items, COUNTED, 1);
    lwp_stop(session);
    drain(session, &knowledge, version);
    if (lwp_missed(session, &missed) != 0 || missed != 0)
        fail("the ring had no room for a record of everything");
    lwp_close(session);
    return knowledge;
}

/* ---- Times --------------------------------------------------------------------------------------- */

/* All the work twice, profiled if there is a session. Returns the second time's nanoseconds per item. */
static double work_through(const struct version *version, struct lwp_session *session)
{
    struct knowledge unused;
    struct timespec started, ended;
    int pass;
    memset(&unused, 0, sizeof unused);
    for (pass = 0; pass < 2; pass++) {
        struct work work = {0, PIECE, 1};
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &started);
        while (proceed(&work, version))
            if (session != NULL) {
                lwp_flush(session);
                drain(session, &unused, version);
            }
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ended);
    if (session != NULL)
        lwp_close(session);
    return ((double)(ended.tv_sec - started.tv_sec) * 1e9 + (double)(ended.tv_nsec - started.tv_nsec)) / ITEMS;
}

static int by_size(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static double median(double *values)
{
    qsort(values, rounds, sizeof *values, by_size);
    return values[rounds / 2];
}

/* Prints each kind's time as a multiple of the first version's: the median of the rounds. */
static void measure(const struct version *first, const struct version *sampled, const struct version *second)
{
    static const char *const names[5] = {
        "first version",
        "first version, branches recorded",
        "first version with LWPVAL, LWP off",
        "first version with LWPVAL, branches and methods recorded",
        "second version",
    };
    double *times = malloc((rounds ? rounds : 1) * 5 * sizeof *times);
    uint32_t round, kind;
    if (times == NULL)
        fail("no memory");
    for (round = 0; round < rounds; round++) {
        times[round] = work_through(first, NULL);
        times[rounds + round] = work_through(first, sample()) / times[round];
        times[2 * rounds + round] = work_through(sampled, NULL) / times[round];
        times[3 * rounds + round] = work_through(sampled, sample()) / times[round];
        times[4 * rounds + round] = work_through(second, NULL) / times[round];
    }
    for (kind = 0; kind < 5 && rounds != 0; kind++)
        printf("%s: %.2f %s\n", names[kind], median(times + kind * rounds), kind ? "times that" : "ns per item");
    free(times);
}

static uint32_t argument(const char *text)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (*text == '\0' || *end != '\0' || value > UINT32_MAX)
        fail("usage: self_optimizing [INTERVAL [RECORDS [ROUNDS]]]");
    return (uint32_t)value;
}

static unsigned per_thousand(unsigned sum)
{
    return sum * 1000 / COUNTED;
}

static const char *yes(int is)
{
    return is ? "yes" : "NO";
}

int main(int argc, char **argv)
{
    static struct knowledge knowledge, every, before, after;
    static struct version first, sampled, second;
    struct plan plan, of_everything, plain = {{0, 1, 2, 3, 4, 5, 6}, {-1, -1, -1, -1, -1, -1, -1}, 0};
    struct work work = {0, PIECE, 1};
    int is_right;
    if (argc > 1)
        interval = argument(argv[1]);
    if (argc > 2)
        ring_records = argument(argv[2]);
    if (argc > 3)
        rounds = argument(argv[3]);
    if (lwp_available() != 0) {
        fprintf(stderr, "self_optimizing: %s\n", lwp_last_error());
        return NO_LWP;
    }
    make_items(items);
    compile(&first, &plain);
    plain.samples_methods = 1;
    compile(&sampled, &plain);

    learn(&work, &sampled, &knowledge);
    plan = decide(&knowledge);
    compile(&second, &plan);
    while (proceed(&work, &second))
        ;

    tell(&knowledge, &plan);
    every = count(&sampled); /* What a record of every branch and method says. */
    of_everything = decide(&every);
    printf("decided as from a record of everything: %s\n", yes(memcmp(&plan, &of_everything, sizeof plan) == 0));
    is_right = work.sum == interpret(items, items + ITEMS, 1);
    printf("result as interpreted: %s\n", yes(is_right));
    before = count(&first);
    after = count(&second);
    printf("per 1,000 items      first version    second version\n");
    printf("instructions %21u %17u\n", per_thousand(before.instructions),
           per_thousand(after.instructions));
    printf("branches taken %19u %17u\n", per_thousand(before.taken), per_thousand(after.taken));
    measure(&first, &sampled, &second);
    return is_right ? 0 : 1;
}
