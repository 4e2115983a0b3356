#include "cli/loss_plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "base/text.h"
#include "cli/output.h"

namespace rullama::cli {
namespace {

constexpr double kLeft = 70, kRight = 730, kTop = 50, kBottom = 330, kRateTop = 370, kRateBottom = 430;
constexpr std::size_t kMostPoints = 2000;  // of a curve
constexpr double kMemory = 0.9;            // of the running mean

// Distances of 1, 2 or 5 times a power of ten, some five of them in `span`.
double tick_distance(double span) {
  const double rough = span / 5, power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (rough <= factor * power) return factor * power;
  return 10 * power;
}

std::string number(double v) {
  if (v != 0 && std::abs(v) < 1e-3) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1e", v);
    return text;
  }
  std::string text = fixed(v, 4);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text;
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : without_controls(text)) {
    if (c == '<')
      out += "&lt;";
    else if (c == '&')
      out += "&amp;";
    else
      out += c;
  }
  return out;
}

class Plot {
 public:
  explicit Plot(std::span<const FinetuneStep> steps) : steps_(steps) {
    for (const FinetuneStep& s : steps) {
      most_loss_ = std::max({most_loss_, s.loss, s.eval_loss.value_or(0)});
      most_rate_ = std::max(most_rate_, s.learning_rate);
    }
    first_ = static_cast<double>(steps.front().step);
    last_ = std::max(static_cast<double>(steps.back().step), first_ + 1);
    if (most_loss_ <= 0) most_loss_ = 1;
    if (most_rate_ <= 0) most_rate_ = 1;
  }

  std::string svg(std::string_view title) {
    out_ =
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 800 480\" font-family=\"sans-serif\" "
        "font-size=\"12\">\n"
        "<rect width=\"800\" height=\"480\" fill=\"white\"/>\n";
    text(kLeft, 24, "start", escaped(title), 16);
    axes();
    curve([](const FinetuneStep& s) { return s.loss; }, kTop, kBottom, most_loss_, "#9ab7d9", 1);
    double mean = 0, weight = 0;
    curve(
        [&](const FinetuneStep& s) {
          mean = kMemory * mean + (1 - kMemory) * s.loss;
          weight = kMemory * weight + (1 - kMemory);
          return mean / weight;
        },
        kTop, kBottom, most_loss_, "#1f4e8c", 2);
    for (const FinetuneStep& s : steps_)
      if (s.eval_loss)
        add(cat("<circle cx=\"", x(s), "\" cy=\"", y(*s.eval_loss, kTop, kBottom, most_loss_),
                "\" r=\"4\" fill=\"#c8501e\"/>\n"));
    curve([](const FinetuneStep& s) { return s.learning_rate; }, kRateTop, kRateBottom, most_rate_, "#4a8c3f", 2);
    text(kRight, 42, "end", "loss of a step (pale), running mean (dark), evaluation (dots)", 12);
    text(kRight, kRateTop - 6, "end", "learning rate", 12);
    return out_ + "</svg>\n";
  }

 private:
  void add(std::string_view part) { out_ += part; }
  void text(double at_x, double at_y, const char* anchor, std::string_view what, int size) {
    add(cat("<text x=\"", fixed(at_x, 1), "\" y=\"", fixed(at_y, 1), "\" text-anchor=\"", anchor, "\" font-size=\"",
            size, "\" fill=\"#333\">", what, "</text>\n"));
  }
  void line(double x1, double y1, double x2, double y2) {
    add(cat("<line x1=\"", fixed(x1, 1), "\" y1=\"", fixed(y1, 1), "\" x2=\"", fixed(x2, 1), "\" y2=\"", fixed(y2, 1),
            "\" stroke=\"#ddd\"/>\n"));
  }
  [[nodiscard]] double at(double step) const { return kLeft + (kRight - kLeft) * (step - first_) / (last_ - first_); }
  [[nodiscard]] std::string x(const FinetuneStep& s) const { return fixed(at(static_cast<double>(s.step)), 1); }
  static std::string y(double v, double top, double bottom, double most) {
    return fixed(bottom - (bottom - top) * std::clamp(v / most, 0.0, 1.0), 1);
  }

  void axes() {
    const double step = tick_distance(most_loss_);
    for (double v = 0; v <= most_loss_ * 1.0001; v += step) {
      const double height = kBottom - (kBottom - kTop) * v / most_loss_;
      line(kLeft, height, kRight, height);
      text(kLeft - 8, height + 4, "end", number(v), 12);
    }
    const double apart = std::max(1.0, tick_distance(last_ - first_));
    for (double s = std::ceil(first_ / apart) * apart; s <= last_; s += apart) {
      line(at(s), kTop, at(s), kRateBottom);
      text(at(s), kRateBottom + 18, "middle", number(s), 12);
    }
    text((kLeft + kRight) / 2, kRateBottom + 38, "middle", "step", 12);
    line(kLeft, kRateBottom, kRight, kRateBottom);
    text(kLeft - 8, kRateTop + 8, "end", number(most_rate_), 12);
    text(kLeft - 8, kRateBottom + 4, "end", "0", 12);
  }

  void curve(const std::function<double(const FinetuneStep&)>& value, double top, double bottom, double most,
             const char* colour, int width) {
    const std::size_t every = (steps_.size() + kMostPoints - 1) / kMostPoints;
    add(cat("<polyline fill=\"none\" stroke=\"", colour, "\" stroke-width=\"", width, "\" points=\""));
    for (std::size_t i = 0; i < steps_.size(); i++) {
      const double v = value(steps_[i]);
      if (i % every == 0 || i + 1 == steps_.size()) add(cat(x(steps_[i]), ",", y(v, top, bottom, most), " "));
    }
    add("\"/>\n");
  }

  std::span<const FinetuneStep> steps_;
  double most_loss_ = 0, most_rate_ = 0, first_ = 0, last_ = 1;
  std::string out_;
};

}  // namespace

std::string loss_plot(std::span<const FinetuneStep> steps, std::string_view title) {
  return steps.empty() ? std::string() : Plot(steps).svg(title);
}

}  // namespace rullama::cli
