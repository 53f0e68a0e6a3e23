/* What nobody should do while Lightweight Profiling is on. Each case runs in a process of its own and says what it
 * found; how the process ended is said too. Any processor with LWP prints the same. */
#define _GNU_SOURCE
#include <lwp.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

enum { PAGE = 4096, RECORD = 32, RING = 2048 };

static struct lwp_capabilities capabilities;
static struct lwp_control_block static_block __attribute__((aligned(64)));
static char static_ring[PAGE] __attribute__((aligned(4096)));
static sigjmp_buf back;
static volatile sig_atomic_t caught;
static void *volatile fault_address;

static void *pages(unsigned count, int rights)
{
	return mmap(NULL, count * PAGE, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static struct lwp_control_block *prepare(struct lwp_control_block *block, void *ring, uint32_t flags)
{
	memset(block, 0, sizeof *block);
	block->flags = flags;
	block->buffer_size_random = RING;
	block->buffer_base = (uint64_t)(uintptr_t)ring;
	block->threshold = 1 << 20;
	return block;
}

static void on(int signal, void (*handler)(int, siginfo_t *, void *), int flags)
{
	struct sigaction action;
	memset(&action, 0, sizeof action);
	action.sa_sigaction = handler;
	action.sa_flags = SA_SIGINFO | flags;
	sigaction(signal, &action, NULL);
}

static void jump_out(int signal, siginfo_t *info, void *context)
{
	(void)context;
	caught = signal;
	fault_address = info->si_addr;
	siglongjmp(back, 1);
}

static const char *is_on(const void *block) { return __slwpcb() == block ? "on" : "off"; }

static unsigned recorded(const struct lwp_control_block *block)
{
	return block->buffer_head_offset / RECORD;
}

static void unmapped_block(void)
{
	struct lwp_control_block *block = prepare(pages(1, PROT_READ | PROT_WRITE), static_ring, 0);
	on(SIGSEGV, jump_out, 0);
	__llwpcb(block);
	munmap(block, PAGE);
	if (sigsetjmp(back, 1) == 0)
		__slwpcb();
	printf("flush: signal %d inside %d\n", caught, (uintptr_t)fault_address / PAGE == (uintptr_t)block / PAGE);
	caught = 0;
	if (sigsetjmp(back, 1) == 0)
		__lwpins32(1, 2, 3);
	printf("insert: signal %d\n", caught);
	mmap(block, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	__llwpcb(NULL);
	printf("head %u\n", recorded(block));
}

static void read_only_block(void)
{
	struct lwp_control_block *block = prepare(pages(1, PROT_READ | PROT_WRITE), static_ring, 0);
	block->flags = LWP_FLAG(1);
	mprotect(block, PAGE, PROT_READ);
	on(SIGSEGV, jump_out, 0);
	if (sigsetjmp(back, 1) == 0)
		__llwpcb(block);
	printf("load: signal %d, %s\n", caught, is_on(block));
}

static void protected_ring(void)
{
	char *ring = pages(1, PROT_READ | PROT_WRITE);
	struct lwp_control_block *block = prepare(&static_block, ring, 0);
	on(SIGSEGV, jump_out, 0);
	__llwpcb(block);
	__lwpins32(1, 2, 3);
	mprotect(ring, PAGE, PROT_READ);
	if (sigsetjmp(back, 1) == 0)
		__lwpins32(1, 2, 3);
	printf("read-only: signal %d at %td\n", caught, (char *)fault_address - ring);
	mprotect(ring, PAGE, PROT_READ | PROT_WRITE);
	__lwpins32(1, 2, 3);
	char *moved = mremap(ring, PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, pages(2, PROT_NONE));
	caught = 0;
	if (sigsetjmp(back, 1) == 0)
		__lwpins32(1, 2, 3);
	printf("moved: signal %d at %td, %d in it\n", caught, (char *)fault_address - ring, (unsigned char)moved[0]);
	munmap(moved, 2 * PAGE);
	mmap(ring, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	__lwpins32(1, 2, 3);
	__llwpcb(NULL);
	printf("%u recorded, %d %d\n", recorded(block), ring[0], (unsigned char)ring[2 * RECORD]);
}

/* A record lies where code was, and is code. */
static void code_in_the_ring(void)
{
	unsigned char *ring = pages(1, PROT_READ | PROT_WRITE | PROT_EXEC);
	const unsigned char one[] = { 0xb8, 1, 0, 0, 0, 0xc3, 0, 0 }, two[] = { 0xb8, 2, 0, 0, 0, 0xc3, 0, 0 };
	uint64_t data;
	int (*code)(void) = (int (*)(void))(uintptr_t)(ring + 16);
	memcpy(ring + 16, one, sizeof one);
	memcpy(&data, two, sizeof data);
	struct lwp_control_block *block = prepare(&static_block, ring, LWP_FLAG(2) | LWP_FLAG(3));
	lwp_slot(block, &capabilities, 2)->counter = lwp_slot(block, &capabilities, 2)->interval = 1 << 20;
	lwp_slot(block, &capabilities, 3)->counter = lwp_slot(block, &capabilities, 3)->interval = 1 << 20;
	__llwpcb(block);
	int before = code();
	__lwpins64(data, 2, 3);
	int after = code();
	__llwpcb(NULL);
	printf("%d, then %d\n", before, after);
}

static void everything_at_once(void)
{
	struct lwp_control_block *block = prepare(&static_block, static_ring, 0x7e);
	block->buffer_size_random = 1024;
	__llwpcb(block);
	for (volatile int i = 0; i < 200; i++)
		__lwpval32(i, i, 7);
	__llwpcb(NULL);
	printf("%u recorded, missed %d\n", recorded(block), block->missed_events > 500);
}

static void change_pc(int signal, siginfo_t *info, void *context)
{
	(void)signal, (void)info;
	caught++;
	__lwpins32(9, 9, 9);
	((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2;
}

static void alternate_stack(void)
{
	stack_t stack = { .ss_sp = malloc(65536), .ss_size = 65536 };
	sigaltstack(&stack, NULL);
	on(SIGILL, change_pc, SA_ONSTACK);
	struct lwp_control_block *block = prepare(&static_block, static_ring, 0);
	__llwpcb(block);
	for (int i = 0; i < 3; i++)
		__asm__ volatile("ud2" : : : "memory");
	printf("%s, %d caught, %u recorded\n", is_on(block), caught, recorded(block));
}

static void stop_and_go(int signal, siginfo_t *info, void *context)
{
	(void)signal, (void)info, (void)context;
	__llwpcb(NULL);
	__llwpcb(&static_block);
	__lwpins32(1, 1, 1);
	if (++caught % 2 == 0)
		siglongjmp(back, 1);
}

static void jumps_out_of_handlers(void)
{
	volatile int rounds = 0;
	on(SIGUSR1, stop_and_go, SA_NODEFER);
	__llwpcb(prepare(&static_block, static_ring, LWP_FLAG(2)));
	lwp_slot(&static_block, &capabilities, 2)->interval = 0x1ffffff;
	sigsetjmp(back, 1);
	while (rounds++ < 10)
		raise(SIGUSR1);
	printf("%s, %d caught\n", is_on(&static_block), caught);
}

static ucontext_t here, there;

static void elsewhere(void)
{
	__lwpins32(2, 2, 2);
	swapcontext(&there, &here);
	__lwpins32(4, 4, 4);
}

static void contexts(void)
{
	struct lwp_control_block *block = prepare(&static_block, static_ring, 0);
	getcontext(&there);
	there.uc_stack.ss_sp = malloc(65536);
	there.uc_stack.ss_size = 65536;
	there.uc_link = &here;
	makecontext(&there, elsewhere, 0);
	__llwpcb(block);
	__lwpins32(1, 1, 1);
	swapcontext(&here, &there);
	__lwpins32(3, 3, 3);
	swapcontext(&here, &there);
	printf("%s, %u recorded\n", is_on(block), recorded(block));
}

static void name_lwp_in_frame(int signal, siginfo_t *info, void *context)
{
	(void)signal, (void)info;
	unsigned char *image = (unsigned char *)((ucontext_t *)context)->uc_mcontext.fpregs;
	printf("%d in the frame\n", image[519] >> 6 & 1);
	fflush(stdout);
	image[519] |= 1 << 6;
}

/* The kernel that builds the frame knows nothing of the component, and refuses it. */
static void component_in_a_frame(void)
{
	on(SIGUSR1, name_lwp_in_frame, 0);
	__llwpcb(prepare(&static_block, static_ring, 0));
	raise(SIGUSR1);
	printf("it was taken\n");
}

static void changing_code(void)
{
	unsigned char *code = pages(1, PROT_READ | PROT_WRITE | PROT_EXEC);
	const unsigned char first[] = { 0xb8, 0, 0, 0, 0, 0x85, 0xc0, 0x74, 0x02, 0x90, 0x90, 0xc3 };
	memcpy(code, first, sizeof first);
	struct lwp_control_block *block = prepare(&static_block, static_ring, LWP_FLAG(2) | LWP_FLAG(3));
	lwp_slot(block, &capabilities, 2)->interval = 3;
	lwp_slot(block, &capabilities, 3)->interval = 1;
	unsigned sum = 0;
	__llwpcb(block);
	for (int i = 0; i < 50; i++) {
		code[1] = (unsigned char)(i & 3);
		sum += ((unsigned (*)(void))(uintptr_t)code)();
	}
	__llwpcb(NULL);
	printf("sum %u, head %u, missed %d\n", sum, recorded(block), block->missed_events > 0);
}

static int child(void *argument)
{
	struct lwp_control_block *block = argument;
	int was_off = __slwpcb() == NULL;
	__llwpcb(block);
	__lwpins32(5, 5, 5);
	_exit(was_off && __slwpcb() == block);
}

static void shared_memory(void)
{
	struct lwp_control_block *blocks = pages(1, PROT_READ | PROT_WRITE);
	char *rings = pages(2, PROT_READ | PROT_WRITE), *stack = pages(16, PROT_READ | PROT_WRITE);
	struct lwp_control_block *mine = prepare(blocks, rings, 0);
	struct lwp_control_block *theirs = prepare(blocks + 4, rings + PAGE, 0);
	int status = 0;
	__llwpcb(mine);
	__lwpins32(1, 1, 1);
	int pid = clone(child, stack + 16 * PAGE, CLONE_VM | CLONE_VFORK | SIGCHLD, theirs);
	waitpid(pid, &status, 0);
	printf("clone: %d, %s, %u and %u\n", WEXITSTATUS(status), is_on(mine), recorded(mine), recorded(theirs));
	pid = vfork();
	if (pid == 0)
		child(theirs);
	waitpid(pid, &status, 0);
	__lwpins32(2, 2, 2);
	printf("vfork: %d, %s, %u and %u\n", WEXITSTATUS(status), is_on(mine), recorded(mine), recorded(theirs));
}

static void *leaves_it_on(void *block)
{
	for (int i = 0; i < 20; i++) {
		__llwpcb(block);
		__lwpins32(3, 3, 3);
	}
	return NULL;
}

/* Whose records are whose is nobody's business; that each thread ends is. */
static void one_block_for_all(void)
{
	pthread_t threads[4];
	struct lwp_control_block *block = prepare(&static_block, static_ring, LWP_FLAG(2));
	lwp_slot(block, &capabilities, 2)->interval = 20;
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, leaves_it_on, block);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	printf("all ended, %s, head inside %d\n", is_on(block), block->buffer_head_offset < RING);
}

static void *waits_with_it_on(void *argument)
{
	static struct lwp_control_block block __attribute__((aligned(64)));
	static char ring[PAGE];
	__llwpcb(prepare(&block, ring, LWP_FLAG(2)));
	caught = 1;
	for (;;)
		pause();
	return argument;
}

static void exec_with_threads(void)
{
	pthread_t thread;
	pthread_create(&thread, NULL, waits_with_it_on, NULL);
	while (caught == 0)
		sched_yield();
	__llwpcb(prepare(&static_block, static_ring, LWP_FLAG(2)));
	execl("/proc/self/exe", "hostile", "after-exec", (char *)NULL);
}

static void killed(void)
{
	__llwpcb(prepare(&static_block, static_ring, 0x7e));
	syscall(SYS_tgkill, getpid(), getpid(), SIGKILL);
}

static void wild_head(void)
{
	struct lwp_control_block *block = prepare(&static_block, static_ring, 0);
	__llwpcb(block);
	block->buffer_head_offset = 0xfffffff0;
	block->buffer_tail_offset = 0x7ffffff1;
	for (int i = 0; i < 100; i++)
		__lwpins32(1, 2, 3);
	__llwpcb(NULL);
	int outside = 0;
	for (int i = RING; i < PAGE; i++)
		outside |= static_ring[i];
	printf("head inside %d, outside %d\n", block->buffer_head_offset < RING, outside);
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{ "unmapped block", unmapped_block },
	{ "read-only block", read_only_block },
	{ "protected and moved ring", protected_ring },
	{ "code in the ring", code_in_the_ring },
	{ "everything at once", everything_at_once },
	{ "alternate stack", alternate_stack },
	{ "jumps out of handlers", jumps_out_of_handlers },
	{ "contexts", contexts },
	{ "component in a frame", component_in_a_frame },
	{ "changing code", changing_code },
	{ "shared memory", shared_memory },
	{ "one block for all", one_block_for_all },
	{ "exec with threads", exec_with_threads },
	{ "killed", killed },
	{ "wild head", wild_head },
};

int main(int argc, char **argv)
{
	if (lwp_query(&capabilities) != LWP_READY)
		return 2;
	if (argc > 1 && strcmp(argv[1], "after-exec") == 0) {
		printf("after exec: %s\n", __slwpcb() == NULL ? "off" : "on");
		return 0;
	}
	for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		int status = 0;
		if (argc > 1 && (unsigned)atoi(argv[1]) != i)
			continue;
		printf("%s: ", cases[i].name);
		fflush(stdout);
		int pid = fork();
		if (pid == 0) {
			alarm(60);
			cases[i].run();
			fflush(stdout);
			_exit(0);
		}
		waitpid(pid, &status, 0);
		printf("-- %s %d\n", WIFEXITED(status) ? "code" : "signal", WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
	}
	return 0;
}
