// What Metal refuses and the executor, which erases address spaces, would run. Each marked line has to be refused.
#include <metal_stdlib>
using namespace metal;

struct Pair {
  float a, b;
  float sum() const { return a + b; }
  float device_sum() const device { return a + b; }
};

float of_threadgroup(threadgroup float* p) { return p[0]; }
float without_space(float* p) { return p[0]; }  // refused
inline float of_thread(thread float& v) { return v; }
template <class T>
T of_device(device const T* p) {
  return p[0];
}

constant float kFine = 1.0f;
float variable = 2.0f;  // refused

kernel void spaces(device float* d [[buffer(0)]], constant Pair& c [[buffer(1)]], device const float3* three [[buffer(2)]],
                   uint i [[thread_position_in_grid]]) {
  threadgroup float t[32];
  t[i] = d[i];
  d[1] = of_device(d) + kFine;
  float mine = d[2];
  d[3] = of_thread(mine);
  threadgroup float* as_threadgroup = d;  // refused
  device float* as_device = t;  // refused
  float* as_nothing = d;  // refused
  d[0] = of_threadgroup(d);  // refused
  d[2] = of_device(t);  // refused
  threadgroup float* cast = (threadgroup float*)d;  // refused
  c.a = 1.0f;  // refused
  d[4] = of_thread(d[5]);  // refused
  constant float* as_constant = d;  // refused
  device Pair* pairs = (device Pair*)d;
  d[5] = pairs->device_sum();
  d[5] = pairs->sum();  // refused
  const float3 v = three[i];  // refused
  d[6] = v.x;
}

float through_a_pointer(float (*f)(float), float x) { return f(x); }  // refused
void converts(device float4* f, device half4* h, device uint4* u) {
  f[0] = h[0];  // refused
  f[1] = u[1];  // refused
  h[2] = half4(f[2]);
}
void keeps(device float* d) {
  static float q;  // refused
  d[0] = 1.0f;
}
