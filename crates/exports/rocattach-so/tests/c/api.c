/* Uses the C interface from its header, without any process to attach to. */
#include <rocprofiler-sdk-rocattach/rocattach.h>

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

_Static_assert(sizeof(rocattach_version_triplet_t) == 12, "three numbers of four bytes");
_Static_assert(sizeof(rocattach_status_t) == 4, "a status is four bytes");
_Static_assert(ROCATTACH_STATUS_ERROR_PTRACE_PROCESS_NOT_FOUND == 6 && ROCATTACH_STATUS_LAST == 7, "AMD's numbers");

static int failures;
#define EXPECT(condition) ((condition) ? (void)0 : (void)(++failures, printf("line %d: %s\n", __LINE__, #condition)))

int main(void)
{
    uint32_t                    major = 0, minor = 0, patch = 9999;
    rocattach_version_triplet_t triplet = {0, 0, 0};
    EXPECT(rocattach_get_version(&major, &minor, &patch) == ROCATTACH_STATUS_SUCCESS && major == 1 && patch != 9999);
    EXPECT(rocattach_get_version(NULL, NULL, NULL) == ROCATTACH_STATUS_SUCCESS);
    EXPECT(rocattach_get_version(NULL, &minor, NULL) == ROCATTACH_STATUS_SUCCESS);
    EXPECT(rocattach_get_version_triplet(&triplet) == ROCATTACH_STATUS_SUCCESS);
    EXPECT(triplet.major == major && triplet.minor == minor && triplet.patch == patch);
    EXPECT(rocattach_get_version_triplet(NULL) == ROCATTACH_STATUS_ERROR_INVALID_ARGUMENT);

    for(int status = 0; status < ROCATTACH_STATUS_LAST; ++status)
    {
        const char* name = rocattach_get_status_name((rocattach_status_t)status);
        EXPECT(name && strncmp(name, "ROCATTACH_STATUS_", 17) == 0);
        EXPECT(rocattach_get_status_string((rocattach_status_t)status) != NULL);
    }
    EXPECT(strcmp(rocattach_get_status_name(ROCATTACH_STATUS_ERROR_NOT_SUPPORTED), "ROCATTACH_STATUS_ERROR_NOT_SUPPORTED") == 0);
    EXPECT(rocattach_get_status_name(ROCATTACH_STATUS_LAST) == NULL);
    EXPECT(rocattach_get_status_string((rocattach_status_t)-1) == NULL);

    EXPECT(rocattach_detach(0) == ROCATTACH_STATUS_SUCCESS);
    EXPECT(rocattach_detach(1) == ROCATTACH_STATUS_ERROR_INVALID_ARGUMENT);
    EXPECT(rocattach_attach(0) == ROCATTACH_STATUS_ERROR_INVALID_ARGUMENT);
    EXPECT(rocattach_attach(-1) == ROCATTACH_STATUS_ERROR_INVALID_ARGUMENT);
    EXPECT(rocattach_attach(INT_MIN) == ROCATTACH_STATUS_ERROR_INVALID_ARGUMENT);
    /* A number that no process has, and one without a GPU runtime: this one. */
    EXPECT(rocattach_attach(INT_MAX) == ROCATTACH_STATUS_ERROR_PTRACE_PROCESS_NOT_FOUND);
    EXPECT(rocattach_attach((int)getpid()) != ROCATTACH_STATUS_SUCCESS);
    EXPECT(rocattach_detach((int)getpid()) == ROCATTACH_STATUS_ERROR_INVALID_ARGUMENT);
    EXPECT(rocattach_attach_tree(0) == ROCATTACH_STATUS_ERROR_INVALID_ARGUMENT);
    EXPECT(rocattach_attach_tree(INT_MAX) == ROCATTACH_STATUS_ERROR_PTRACE_PROCESS_NOT_FOUND);
    EXPECT(rocattach_attach_tree((int)getpid()) != ROCATTACH_STATUS_SUCCESS);
    EXPECT(rocattach_detach_tree(INT_MAX) == ROCATTACH_STATUS_ERROR_INVALID_ARGUMENT);
    EXPECT(rocattach_detach_tree((int)getpid()) == ROCATTACH_STATUS_ERROR_INVALID_ARGUMENT);

    fputs("-- first generation\n", stderr);
    attach(UINT32_MAX);
    attach(0);
    detach();
    return failures != 0;
}
