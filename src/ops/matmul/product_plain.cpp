// Stands in for product_cpu.cpp where Highway is not to be had (the browser build, which computes on the GPU).
#include "ops/matmul/product.h"

namespace rullama {

void product_cpu(const ProductCpu& p, Crew& crew, Precision) { product_reference(p, crew); }

}  // namespace rullama
