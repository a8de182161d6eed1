/* A QEMU plugin that counts the instructions that a program executes, and prints the count when the program exits.
 *
 * Few distributions package QEMU's header, so the declarations that we need are here. API_VERSION is 1 before QEMU 9,
 * else 2.
 */

#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define EXPORTED __attribute__((visibility("default")))

typedef uint64_t plugin_id;
struct qemu_plugin_tb;

void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, void (*)(plugin_id, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *, void (*)(unsigned, void *), int flags, void *);
void qemu_plugin_register_atexit_cb(plugin_id, void (*)(plugin_id, void *), void *);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);

EXPORTED int qemu_plugin_version = API_VERSION;

/* Not atomic: the measured programs have one thread. */
static uint64_t instruction_count;

static void on_block_executed(unsigned cpu, void *block_instruction_count) {
    (void)cpu;
    instruction_count += (uintptr_t)block_instruction_count;
}

static void on_block_translated(plugin_id id, struct qemu_plugin_tb *block) {
    (void)id;
    qemu_plugin_register_vcpu_tb_exec_cb(block, on_block_executed, 0, (void *)qemu_plugin_tb_n_insns(block));
}

static void on_exit(plugin_id id, void *data) {
    (void)id;
    (void)data;
    fprintf(stderr, "%" PRIu64 "\n", instruction_count);
}

EXPORTED int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv) {
    (void)info;
    (void)argc;
    (void)argv;
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_block_translated);
    qemu_plugin_register_atexit_cb(id, on_exit, NULL);
    return 0;
}
