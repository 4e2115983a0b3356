// Schedules, batches, and the course of a training.
#include "train/course.h"

#include <cmath>
#include <map>

#include "base/random.h"
#include "train/lora_case.h"
#include "train/lora_setup.h"

namespace rullama::test {
namespace {

TEST(Schedule, TheFormulasOfHuggingFace) {
  const auto rates = [](Schedule kind, std::uint64_t warmup, std::uint32_t cycles = 1) {
    std::vector<double> all;
    for (std::uint64_t step = 0; step < 12; step++) all.push_back(learning_rate({kind, 1, warmup, 10, cycles}, step));
    return all;
  };
  const auto expect = [](const std::vector<double>& found, const std::vector<double>& expected) {
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); i++) EXPECT_NEAR(found[i], expected[i], 1e-6) << "step " << i;
  };
  expect(rates(Schedule::constant, 4), {0, .25, .5, .75, 1, 1, 1, 1, 1, 1, 1, 1});
  expect(rates(Schedule::linear, 2), {0, .5, 1, .875, .75, .625, .5, .375, .25, .125, 0, 0});
  expect(rates(Schedule::cosine, 2),
         {0, .5, 1, .96193977, .85355339, .69134172, .5, .30865828, .14644661, .03806023, 0, 0});
  expect(rates(Schedule::cosine_with_restarts, 2, 2),
         {0, .5, 1, .85355339, .5, .14644661, 1, .85355339, .5, .14644661, 0, 0});
  EXPECT_EQ(learning_rate({Schedule::linear, 3e-4, 0, 10}, 0), 3e-4);
  EXPECT_EQ(learning_rate({Schedule::linear, 1, 20, 10}, 5), 0.25) << "a warm-up beyond the end";
  for (const Schedule s : {Schedule::constant, Schedule::linear, Schedule::cosine, Schedule::cosine_with_restarts})
    EXPECT_EQ(schedule_of(name(s)), s);
  EXPECT_FALSE(schedule_of("sawtooth"));
}

std::vector<Example> examples_of_lengths(const std::vector<std::size_t>& lengths) {
  std::vector<Example> all;
  for (std::size_t i = 0; i < lengths.size(); i++)
    all.push_back({std::vector<Token>(lengths[i], static_cast<Token>(i)), std::vector<Token>(lengths[i], 1)});
  return all;
}

// Each epoch takes every example once, whole.
class PlanTest : public ::testing::TestWithParam<BatchOptions> {};
TEST_P(PlanTest, AnEpochTakesEachExampleOnce) {
  const BatchOptions o = GetParam();
  std::vector<std::size_t> lengths;
  Random random(7);
  for (int i = 0; i < 103; i++) lengths.push_back(1 + random.next() % 40);
  const auto examples = examples_of_lengths(lengths);
  BatchPlan plan(examples, o);
  std::vector<std::vector<Token>> orders;
  for (const std::uint64_t epoch : {0, 1, 2}) {
    const std::uint64_t begin = plan.steps_of(static_cast<double>(epoch)),
                        end = plan.steps_of(static_cast<double>(epoch) + 1);
    ASSERT_LT(begin, end);
    EXPECT_EQ(plan.epoch_at(begin), static_cast<double>(epoch));
    std::map<Token, std::size_t> seen;
    std::vector<Token> order;
    for (std::uint64_t step = begin; step < end; step++) {
      const auto batches = plan.step(step);
      EXPECT_LE(batches.size(), o.grad_accum);
      EXPECT_FALSE(batches.empty());
      for (const TrainBatch& b : batches) {
        EXPECT_LE(b.rows(), plan.rows());
        std::size_t count = 0;
        for (std::size_t row = 0; row < b.rows(); row++) {
          if (b.first[row] != row) continue;
          order.push_back(b.tokens[row]);
          count++;
        }
        EXPECT_TRUE(o.packing || count <= o.batch_size) << count;
        for (const Token t : b.tokens) seen[t]++;
      }
    }
    ASSERT_EQ(order.size(), examples.size());
    for (std::size_t i = 0; i < lengths.size(); i++) EXPECT_EQ(seen[static_cast<Token>(i)], lengths[i]) << i;
    orders.push_back(order);
  }
  EXPECT_EQ(orders[0] == orders[1], !o.shuffle);
  // any step can be asked for again
  BatchPlan fresh(examples, o);
  const std::uint64_t late = plan.steps_of(2) + 1;
  EXPECT_EQ(fresh.step(late)[0].tokens, plan.step(late)[0].tokens);
  EXPECT_EQ(plan.step(0)[0].tokens[0], orders[0][0]);
}
INSTANTIATE_TEST_SUITE_P(
    Options, PlanTest,
    ::testing::Values(BatchOptions{.batch_size = 4, .max_length = 40}, BatchOptions{.batch_size = 1, .max_length = 40},
                      BatchOptions{.batch_size = 4, .grad_accum = 3, .max_length = 40},
                      BatchOptions{.batch_size = 4, .max_length = 40, .packing = true},
                      BatchOptions{.batch_size = 7, .grad_accum = 2, .max_length = 40, .shuffle = false},
                      BatchOptions{.batch_size = 200, .max_length = 40}));

// How many steps there are is known without going through the orders of all epochs.
TEST(Plan, ManyEpochsAreCounted) {
  const auto examples = examples_of_lengths(std::vector<std::size_t>(10'001, 1));
  BatchPlan plan(examples, {.batch_size = 10});
  EXPECT_EQ(plan.steps_of(1e5), 100'100'000u);
}

TEST(Plan, PackingFillsTheRows) {
  const auto examples = examples_of_lengths({30, 10, 25, 15, 40, 5, 35});  // 160 in all
  BatchPlan plan(examples, {.batch_size = 1, .max_length = 40, .packing = true, .shuffle = false});
  EXPECT_EQ(plan.rows(), 40u);
  EXPECT_EQ(plan.steps_of(1), 4u);
  EXPECT_EQ(plan.steps_of(0.5), 2u);
}

// --- courses on a tiny model

struct Tiny {
  Tiny() : c(read_lora_case("g3-f16")), model(load_golden_model(c.base, Where::cpu)) {
    for (std::size_t i = 0; i < 6; i++) {
      Example e;
      e.tokens.assign(c.tokens.begin() + static_cast<std::ptrdiff_t>(i),
                      c.tokens.begin() + static_cast<std::ptrdiff_t>(i + 12));
      e.labels = e.tokens;
      examples.push_back(e);
    }
    evaluation.emplace_back();
    evaluation[0].add(examples[0].tokens, examples[0].labels);
  }
  std::unique_ptr<Trainer> trainer() {
    LoraSetup setup;
    setup.rank = 4;
    auto adapter = make_adapter(*model, setup);
    EXPECT_TRUE(adapter) << adapter.error().message;
    TrainOptions o;
    o.rows = plan.rows();
    auto made = Trainer::make(model, std::make_shared<Adapter>(std::move(*adapter)), o);
    EXPECT_TRUE(made) << made.error().message;
    return std::move(*made);
  }
  LoraCase c;
  std::shared_ptr<TextModel> model;
  std::vector<Example> examples;
  std::vector<TrainBatch> evaluation;
  BatchPlan plan{examples, {.batch_size = 2, .max_length = 12}};
};

TEST(Course, SavesEvaluatesAndEnds) {
  Tiny t;
  t.plan = BatchPlan(t.examples, {.batch_size = 2, .max_length = 12});
  const auto trainer = t.trainer();
  CourseOptions o;
  o.schedule = {Schedule::constant, 1e-3, 0, 7, 1};
  o.save_steps = 3;
  std::vector<StepReport> reports;
  std::vector<std::uint64_t> saved;
  CourseHooks hooks;
  hooks.step = [&](const StepReport& r) -> Result<> { return reports.push_back(r), Result<>(); };
  hooks.checkpoint = [&]() -> Result<> { return saved.push_back(trainer->steps()), Result<>(); };
  const auto end = run_course(*trainer, t.plan, t.evaluation, o, hooks);
  ASSERT_TRUE(end) << end.error().message;
  EXPECT_EQ(*end, CourseEnd::complete);
  EXPECT_EQ(saved, (std::vector<std::uint64_t>{3, 6, 7}));
  ASSERT_EQ(reports.size(), 7u);
  for (std::size_t i = 0; i < 7; i++) {
    EXPECT_EQ(reports[i].step, i + 1);
    EXPECT_EQ(reports[i].tokens, 24u);
    EXPECT_EQ(reports[i].eval_loss.has_value(), i == 2 || i == 5 || i == 6) << "step " << i + 1;
  }
  EXPECT_LT(reports[6].eval_loss, reports[2].eval_loss);
}

TEST(Course, EndsEarlyAndGoesOnAfterAnInterruption) {
  Tiny t;
  t.plan = BatchPlan(t.examples, {.batch_size = 2, .max_length = 12});
  const auto trainer = t.trainer();
  CourseOptions o;
  o.schedule = {Schedule::constant, 1e-30, 0, 50, 1};  // nothing gets better
  o.eval_steps = 2;
  o.patience = 2;
  std::uint64_t last = 0;
  int best = 0, saved = 0;
  CourseHooks hooks;
  hooks.step = [&](const StepReport& r) -> Result<> { return last = r.step, Result<>(); };
  hooks.checkpoint = [&]() -> Result<> { return saved++, Result<>(); };
  hooks.best = [&]() -> Result<> { return best++, Result<>(); };
  hooks.cancelled = [&] { return last == 3; };
  auto end = run_course(*trainer, t.plan, t.evaluation, o, hooks);
  ASSERT_TRUE(end) << end.error().message;
  EXPECT_EQ(*end, CourseEnd::cancelled);
  EXPECT_EQ(last, 3u);
  EXPECT_EQ(saved, 1);
  hooks.cancelled = {};
  CoursePast past;
  past.best_eval_loss = -1.0;  // of before
  past.evaluations_since = 1;
  end = run_course(*trainer, t.plan, t.evaluation, o, hooks, past);
  ASSERT_TRUE(end) << end.error().message;
  EXPECT_EQ(*end, CourseEnd::early);
  EXPECT_EQ(last, 4u);
  EXPECT_EQ(best, 1) << "at step 2, before the interruption";
}

TEST(Course, ALossThatIsNoNumberIsAnError) {
  Tiny t;
  t.plan = BatchPlan(t.examples, {.batch_size = 2, .max_length = 12});
  const auto trainer = t.trainer();
  CourseOptions o;
  o.schedule = {Schedule::constant, 1e30, 0, 50, 1};
  CourseHooks hooks;
  hooks.step = [](const StepReport&) -> Result<> { return {}; };
  hooks.checkpoint = []() -> Result<> { return {}; };
  const auto end = run_course(*trainer, t.plan, {}, o, hooks);
  ASSERT_FALSE(end);
  EXPECT_NE(end.error().message.find("--learning-rate"), std::string::npos) << end.error().message;
}

}  // namespace
}  // namespace rullama::test
