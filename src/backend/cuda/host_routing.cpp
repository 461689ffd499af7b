#include "backend/cuda/host_routing.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace lily::cuda {
namespace {

template <class T>
void to_card(const Launch& where, T* to, const std::vector<T>& from) {
  note_error(cudaMemcpyAsync(to, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice, where.stream),
             "sending the experts' lists");
}

}  // namespace

void route_on_host(const Launch& where, const RouteArgs& a) {
  const auto rows = static_cast<std::size_t>(a.rows);
  const auto k = static_cast<std::size_t>(a.experts_per_token);
  std::vector<float> logits(rows * static_cast<std::size_t>(a.stride));
  note_error(cudaMemcpyAsync(logits.data(), a.logits, logits.size() * sizeof(float), cudaMemcpyDeviceToHost,
                             where.stream),
             "fetching the router's logits");
  note_error(cudaStreamSynchronize(where.stream), "fetching the router's logits");

  std::vector<int> chosen(rows * k);
  std::vector<float> weight(rows * k);
  std::vector<int> counts(static_cast<std::size_t>(a.experts));
  std::vector<int> order(counts.size());
  for (std::size_t row = 0; row < rows; ++row) {
    const float* x = logits.data() + row * static_cast<std::size_t>(a.stride);
    std::iota(order.begin(), order.end(), 0);
    std::partial_sort(order.begin(), order.begin() + a.experts_per_token, order.end(),
                      [x](int i, int j) { return x[i] != x[j] ? x[i] > x[j] : i < j; });
    float total = 0;
    for (std::size_t i = 0; i < k; ++i) total += weight[row * k + i] = std::exp(x[order[i]] - x[order[0]]);
    for (std::size_t i = 0; i < k; ++i) {
      chosen[row * k + i] = order[i];
      weight[row * k + i] /= total;
      ++counts[static_cast<std::size_t>(order[i])];
    }
  }

  std::vector<int> next(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), next.begin(), 0);
  std::vector<int> place(chosen.size());
  std::vector<int> row_index(chosen.size());
  std::vector<float> row_weight(chosen.size());
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    place[i] = next[static_cast<std::size_t>(chosen[i])]++;
    row_index[static_cast<std::size_t>(place[i])] = static_cast<int>(i / k);
    row_weight[static_cast<std::size_t>(place[i])] = weight[i];
  }
  to_card(where, a.counts, counts);
  to_card(where, a.place, place);
  to_card(where, a.row_index, row_index);
  to_card(where, a.row_weight, row_weight);
  note_error(cudaStreamSynchronize(where.stream),
             "sending the experts' lists");  // from memory that ends here
}

}  // namespace lily::cuda
