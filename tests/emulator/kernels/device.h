// The little of HIP that the test kernels need, without ROCm's headers.
#pragma once
#define KERNEL extern "C" __attribute__((global)) void
#define DEVICE __attribute__((device)) inline
#define SHARED __attribute__((shared))

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long u64;
typedef long i64;
typedef _Float16 half2 __attribute__((ext_vector_type(2)));

DEVICE int thread() { return __builtin_amdgcn_workitem_id_x(); }
DEVICE int block() { return __builtin_amdgcn_workgroup_id_x(); }
DEVICE int block_size() { return __builtin_amdgcn_workgroup_size_x(); }
DEVICE int index() { return block() * block_size() + thread(); }
DEVICE int lane() { return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0)); }
DEVICE void barrier() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
