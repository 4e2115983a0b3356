#include "ops/matmul/product.h"

namespace rullama {

void product_cpu(const ProductCpu& p, Crew& crew, Precision) { product_reference(p, crew); }

}  // namespace rullama
