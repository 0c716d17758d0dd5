// The sequential part of a block of the Feedback Transformer, forward and backward, for a range of its streams.
//
// The mathematics is that of forward.py and backward.py in the folder above, step by step, and so are the names of the
// tensors and the letters of their shapes. All is fp32 and contiguous. Streams are independent of each other: threads
// that work on different ranges share nothing that is written.
#include "attention.h"
#include "products.h"
#include "rows.h"

struct Matrix {  // packed
  const float *panels, *bias;
};

struct LayerArgs {
  Matrix query, out, fc1, fc2;
  Matrix query_t, out_t, fc1_t, fc2_t;  // transposed, for the backward pass
  Norm attn_norm, ffn_norm;
  const float* log_mask;    // [H, reach], newest last; null without adaptive spans
  const uint8_t* outside;   // [H, reach]
  int64_t reach, active, set;
};

struct SetArgs {  // a set of keys and values
  Matrix project, project_t;
  Norm norm;                                // null without a norm
  float *rows[2], *panels[2];               // of keys and of values, each stream's and head's C + T slots
  int64_t memory;
};

struct BlockArgs {
  int64_t T, B, D, L, H, E, F, K, C, S, I, record_steps;
  int64_t pre_norm, mask_slots;  // mask_slots: last dimension of the attention's dropout mask
  Activation activation;
  float scale, eps, attention_scale, hidden_scale, attention_residual_scale, ffn_residual_scale;
  const LayerArgs* layers;
  const SetArgs* sets;
  const float* mix;  // [K, L + 1]
  const float *key_positions, *value_positions;      // packed [E, S], [S, E]
  const float *key_positions_t, *value_positions_t;  // packed [S, E], [E, S]
  const float *x, *first_query;                      // [T, B, D], [T, B, X]; the query's first row is step `first`
  float *x_ATBD, *attended_x, *q, *a, *p, *hidden, *attention_sum, *ffn_sum;  // the record
  float *memory, *out;                               // [K, T, B, D]; [T, B, D], written where the record keeps one step
  const uint8_t *attention_keep, *hidden_keep, *attention_residual_keep, *ffn_residual_keep;
  const int64_t* reach;                              // [T, B]
  float* scratch;
  int64_t scratch_size;  // of each stream
};

struct TileArgs {
  int64_t first, steps, at, tile_steps, W;
  const float* d_out;
  float *d_x, *dq, *da, *d_attention, *d_ffn, *d_hidden, *d_attn_norm, *d_ffn_norm;
  float *d_kv, *d_kv_normed, *d_memory, *ds;
  const float* p_slots;  // [tile steps, L, G, W]
  float* d_slots;        // [2, I, G, C + T, E]
};

namespace {

// Sizes and places of a range of streams.
struct Range {
  const BlockArgs& c;
  const long b0, n, X, G, rows, slots, panel_slots;

  Range(const BlockArgs& c, long b0, long b1)
      : c(c), b0(b0), n(b1 - b0), X(c.H * c.E), G(c.B * c.H), rows((b1 - b0) * c.H),
        slots(c.C + c.T), panel_slots(slot_panels(c.C + c.T) * VL) {}

  // Of tensors [layer, step, B, width] and [step, layer, B, width], the range's first row.
  template <class T> T* by_layer(T* x, long steps, long l, long t, long width) const {
    return x + ((l * steps + t) * c.B + b0) * width;
  }
  template <class T> T* by_step(T* x, long t, long l, long width) const { return x + ((t * c.L + l) * c.B + b0) * width; }

  float* slot_rows(const SetArgs& s, int side, long head) const { return s.rows[side] + (b0 * c.H + head) * slots * c.E; }
  float* slot_panels_of(const SetArgs& s, int side, long head) const {
    return s.panels[side] + (b0 * c.H + head) * panel_slots * c.E;
  }
  long window(const LayerArgs& layer, long t) const { return c.C + t < layer.reach ? c.C + t : layer.reach; }
  float* scratch() const { return c.scratch + b0 * c.scratch_size; }

  Visible seen(const LayerArgs& layer, long t, long head, long slots_seen) const {
    Visible v;
    const long h = head % c.H;
    if (layer.log_mask) {
      v.log_mask = layer.log_mask + h * layer.reach + layer.reach - slots_seen;
      v.outside = layer.outside + h * layer.reach + layer.reach - slots_seen;
    }
    if (c.reach) {
      const long reach = c.reach[t * c.B + b0 + head / c.H];
      v.far = slots_seen > reach ? slots_seen - reach : 0;
    }
    return v;
  }
  // The mask of a head's last slots, at step t.
  const uint8_t* attention_keep(long l, long t, long head, long slots_seen) const {
    if (!c.attention_keep) return nullptr;
    return c.attention_keep + (((l * c.T + t) * c.B + b0) * c.H + head + 1) * c.mask_slots - slots_seen;
  }
};

void project(const Range& r, long t, float* scratch) {
  const BlockArgs& c = r.c;
  float *normed = scratch, *both = scratch + r.n * c.D;
  for (long i = 0; i < c.I; i++) {
    const SetArgs& set = c.sets[i];
    const float* memory = r.by_layer(c.memory, c.T, set.memory, t, c.D);
    if (set.norm.weight) layer_norm(r.n, c.D, memory, set.norm, c.eps, normed);
    Epilogue e;
    e.bias = set.project.bias;
    product(r.n, c.D, 2 * r.X, set.norm.weight ? normed : memory, c.D, set.project.panels, c.D * PANEL, e, both, 2 * r.X);
    for (long b = 0; b < r.n; b++)
      for (int side = 0; side < 2; side++)
        for (long h = 0; h < c.H; h++) {
          const long head = b * c.H + h;
          write_slot(both + b * 2 * r.X + side * r.X + h * c.E, c.C + t, c.E, r.slot_rows(set, side, head), r.slot_panels_of(set, side, head));
        }
  }
}

void attend(const Range& r, long l, long t, const float* q, float* p, float* a, float* scratch) {
  const BlockArgs& c = r.c;
  const LayerArgs& layer = c.layers[l];
  const SetArgs& set = c.sets[layer.set];
  const long n = r.window(layer, t), first = c.C + t - n;
  if (n == 0) {
    memset(a, 0, r.n * r.X * sizeof(float));
    return;
  }
  float *by_position = scratch, *kept = by_position + r.rows * c.S, *dot = kept + r.rows * c.S;
  if (c.key_positions) product(r.rows, c.E, c.S, q, c.E, c.key_positions, c.E * PANEL, {}, by_position, c.S);
  for (long head = 0; head < r.rows; head++) {
    const float* s = dots(q + head * c.E, r.slot_panels_of(set, 0, head), c.E, first, n, dot);
    float* weights = p + head * c.S + c.S - n;
    if (c.key_positions) {
      const float* position = by_position + head * c.S + c.S - n;
      for (long i = 0; i < n; i++) weights[i] = (s[i] + position[i]) * c.scale;
    } else {
      for (long i = 0; i < n; i++) weights[i] = s[i] * c.scale;
    }
    softmax(weights, n, r.seen(layer, t, head, n));
    const float* used = weights;
    if (const uint8_t* keep = r.attention_keep(l, t, head, n)) {
      drop(n, keep, c.attention_scale, weights, kept + head * c.S + c.S - n);
      used = kept + head * c.S + c.S - n;
    }
    weighted_sum(used, r.slot_rows(set, 1, head) + first * c.E, c.E, n, c.E, a + head * c.E);
  }
  if (c.value_positions) {
    Epilogue e;
    e.then = Then::add, e.other = a, e.stride = c.E;
    const float* used = (c.attention_keep ? kept : p) + c.S - n;
    product(r.rows, n, c.E, used, c.S, c.value_positions + (c.S - n) * PANEL, c.S * PANEL, e, a, c.E);
  }
}

// result = x + y W, or with post-norm the norm of that sum, which goes to `summed`.
void residual(const Range& r, const float* y, long width, const Matrix& w, const uint8_t* keep, float keep_scale, const float* x, Norm norm,
              float* summed, float* result) {
  const BlockArgs& c = r.c;
  float* sum = c.pre_norm ? result : summed;
  Epilogue e;
  e.bias = w.bias;
  if (!keep) e.then = Then::add, e.other = x, e.stride = c.D;
  product(r.n, width, c.D, y, width, w.panels, width * PANEL, e, sum, c.D);
  if (keep) {
    drop(r.n * c.D, keep, keep_scale, sum, sum);
    add_scaled(r.n * c.D, 1.f, x, sum);
  }
  if (!c.pre_norm) layer_norm(r.n, c.D, sum, norm, c.eps, result);
}

void run_layer(const Range& r, long l, long t, long at, float* scratch) {
  const BlockArgs& c = r.c;
  const LayerArgs& layer = c.layers[l];
  const long R = c.record_steps;
  const float* x = r.by_layer(c.x_ATBD, R, l, at, c.D);
  float* result = r.by_layer(c.x_ATBD, R, l + 1, at, c.D);
  if (!layer.active) {
    memcpy(result, x, r.n * c.D * sizeof(float));
    return;
  }
  float *q = r.by_step(c.q, at, l, r.X), *a = r.by_step(c.a, at, l, r.X), *normed = scratch;
  if (l == 0) {
    memcpy(q, c.first_query + (t * c.B + r.b0) * r.X, r.n * r.X * sizeof(float));
  } else {
    if (c.pre_norm) layer_norm(r.n, c.D, x, layer.attn_norm, c.eps, normed);
    Epilogue e;
    e.bias = layer.query.bias;
    product(r.n, c.D, r.X, c.pre_norm ? normed : x, c.D, layer.query.panels, c.D * PANEL, e, q, r.X);
  }
  attend(r, l, t, q, c.p + ((at * c.L + l) * r.G + r.b0 * c.H) * c.S, a, scratch);
  const long step = (l * c.T + t) * c.B + r.b0;  // of masks
  float* attended = r.by_layer(c.attended_x, R, l, at, c.D);
  residual(r, a, r.X, layer.out, c.attention_residual_keep ? c.attention_residual_keep + step * c.D : nullptr, c.attention_residual_scale, x,
           layer.attn_norm, c.pre_norm ? nullptr : r.by_layer(c.attention_sum, R, l, at, c.D), attended);
  float *hidden = r.by_layer(c.hidden, R, l, at, c.F), *act = hidden;
  if (c.pre_norm) layer_norm(r.n, c.D, attended, layer.ffn_norm, c.eps, normed);
  Epilogue e;
  e.bias = layer.fc1.bias;
  if (c.activation == Activation::relu) e.then = Then::relu;
  product(r.n, c.D, c.F, c.pre_norm ? normed : attended, c.D, layer.fc1.panels, c.D * PANEL, e, hidden, c.F);
  if (c.activation != Activation::relu) {
    act = scratch;
    activate(c.activation, r.n * c.F, hidden, act);
  }
  if (c.hidden_keep) {
    drop(r.n * c.F, c.hidden_keep + step * c.F, c.hidden_scale, act, scratch);
    act = scratch;
  }
  residual(r, act, c.F, layer.fc2, c.ffn_residual_keep ? c.ffn_residual_keep + step * c.D : nullptr, c.ffn_residual_scale, attended,
           layer.ffn_norm, c.pre_norm ? nullptr : r.by_layer(c.ffn_sum, R, l, at, c.D), result);
}

// The gradient of a step's keys or values, from the later tiles and from the later steps of this one.
void slot_gradient(const Range& r, const TileArgs& k, long i, long set, int side, long head, float* scratch, float* out) {
  const BlockArgs& c = r.c;
  // Rows of all later steps and layers; or of the one layer whose keys and values these are.
  const long g = r.b0 * c.H + head, first = (i + 1) * c.L + (c.I > 1 ? set : 0), stride = c.I > 1 ? c.L : 1;
  const long rows = (k.steps - i - 1) * (c.I > 1 ? 1 : c.L);
  const float* weights = (side ? k.p_slots : k.ds) + c.S + i;
  const float* vectors = (side ? k.da : c.q + k.at * c.L * c.B * r.X) + first * c.B * r.X + g * c.E;
  const float scale = side ? 1.f : c.scale;
  for (long row = 0; row < rows; row++) scratch[row] = weights[((first + row * stride) * r.G + g) * k.W];
  weighted_sum(scratch, vectors, stride * c.B * r.X, rows, c.E, out);
  const float* later = k.d_slots + (((side * c.I + set) * r.G + g) * r.slots + c.C + k.first + i) * c.E;
  for (long e = 0; e < c.E; e++) out[e] = later[e] + scale * out[e];
}

// The gradients of a step's memories.
void memory_backward(const Range& r, const TileArgs& k, long i, float* scratch) {
  const BlockArgs& c = r.c;
  const long t = k.first + i, last = t + 1 == c.T;
  for (long m = 0; m < c.K; m++) memset(r.by_layer(k.d_memory, k.tile_steps, m, i, c.D), 0, r.n * c.D * sizeof(float));
  for (long s = 0; s < c.I; s++) {
    const SetArgs& set = c.sets[s];
    float *d_kv = r.by_layer(k.d_kv, k.tile_steps, s, i, 2 * r.X), *d_normed = r.by_layer(k.d_kv_normed, k.tile_steps, s, i, c.D);
    if (last) {  // no step of the block sees it
      memset(d_kv, 0, r.n * 2 * r.X * sizeof(float));
      memset(d_normed, 0, r.n * c.D * sizeof(float));
      continue;
    }
    for (long b = 0; b < r.n; b++)
      for (int side = 0; side < 2; side++)
        for (long h = 0; h < c.H; h++)
          slot_gradient(r, k, i, s, side, b * c.H + h, scratch, d_kv + b * 2 * r.X + side * r.X + h * c.E);
    float* target = set.norm.weight ? d_normed : scratch;
    product(r.n, 2 * r.X, c.D, d_kv, 2 * r.X, set.project_t.panels, 2 * r.X * PANEL, {}, target, c.D);
    float* d_memory = r.by_layer(k.d_memory, k.tile_steps, set.memory, i, c.D);
    if (set.norm.weight)
      layer_norm_backward(r.n, c.D, d_normed, r.by_layer(c.memory, c.T, set.memory, t, c.D), set.norm, c.eps, true, d_memory);
    else
      add_scaled(r.n * c.D, 1.f, target, d_memory);
  }
}

void attend_backward(const Range& r, const TileArgs& k, long l, long i, const float* da, float* dq, float* scratch) {
  const BlockArgs& c = r.c;
  const LayerArgs& layer = c.layers[l];
  const SetArgs& set = c.sets[layer.set];
  const long t = k.first + i, at = k.at + i, n = r.window(layer, t), first = c.C + t - n;
  if (n == 0) {
    memset(dq, 0, r.n * r.X * sizeof(float));
    return;
  }
  float *by_position = scratch, *dot = by_position + r.rows * c.S, *from_positions = dot + slot_panels(r.slots) * VL + VL;
  if (c.value_positions_t) product(r.rows, c.E, c.S, da, c.E, c.value_positions_t, c.E * PANEL, {}, by_position, c.S);
  const float* p = c.p + ((at * c.L + l) * r.G + r.b0 * c.H) * c.S;
  float* ds = k.ds + ((i * c.L + l) * r.G + r.b0 * c.H) * k.W + i + c.S - n;
  for (long head = 0; head < r.rows; head++) {
    const float* dp = dots(da + head * c.E, r.slot_panels_of(set, 1, head), c.E, first, n, dot);
    const float* weights = p + head * c.S + c.S - n;
    float* d = ds + head * k.W;
    if (c.value_positions_t) {
      const float* position = by_position + head * c.S + c.S - n;
      for (long s = 0; s < n; s++) d[s] = dp[s] + position[s];
    } else {
      memcpy(d, dp, n * sizeof(float));
    }
    if (const uint8_t* keep = r.attention_keep(l, t, head, n)) drop(n, keep, c.attention_scale, d, d);
    float mean = 0;
#pragma omp simd reduction(+ : mean)
    for (long s = 0; s < n; s++) mean += weights[s] * d[s];
    for (long s = 0; s < n; s++) d[s] = weights[s] * (d[s] - mean);
    weighted_sum(d, r.slot_rows(set, 0, head) + first * c.E, c.E, n, c.E, dq + head * c.E);
  }
  if (c.key_positions_t) {
    product(r.rows, n, c.E, ds, k.W, c.key_positions_t + (c.S - n) * PANEL, c.S * PANEL, {}, from_positions, c.E);
    add_scaled(r.rows * c.E, 1.f, from_positions, dq);
  }
  for (long j = 0; j < r.rows * c.E; j++) dq[j] *= c.scale;
}

void layer_backward(const Range& r, const TileArgs& k, long l, long i, float* dx, float* scratch) {
  const BlockArgs& c = r.c;
  const LayerArgs& layer = c.layers[l];
  const long t = k.first + i, at = k.at + i, R = c.record_steps, size = r.n * c.D, step = (l * c.T + t) * c.B + r.b0;

  // Feed-forward sublayer.
  float* kept = r.by_layer(k.d_ffn_norm, k.tile_steps, l, i, c.D);
  const float* input = r.by_layer(c.pre_norm ? c.attended_x : c.ffn_sum, R, l, at, c.D);
  if (!c.pre_norm) {
    memcpy(kept, dx, size * sizeof(float));
    layer_norm_backward(r.n, c.D, kept, input, layer.ffn_norm, c.eps, false, dx);
  }
  float *d_out = r.by_layer(k.d_ffn, k.tile_steps, l, i, c.D), *d_hidden = r.by_layer(k.d_hidden, k.tile_steps, l, i, c.F);
  if (c.ffn_residual_keep) drop(size, c.ffn_residual_keep + step * c.D, c.ffn_residual_scale, dx, d_out);
  else memcpy(d_out, dx, size * sizeof(float));
  const float* hidden = r.by_layer(c.hidden, R, l, at, c.F);
  Epilogue e;
  const bool plain = c.activation == Activation::relu && !c.hidden_keep;
  if (plain) e.then = Then::where_positive, e.other = hidden, e.stride = c.F;
  product(r.n, c.D, c.F, d_out, c.D, layer.fc2_t.panels, c.D * PANEL, e, d_hidden, c.F);
  if (c.hidden_keep) drop(r.n * c.F, c.hidden_keep + step * c.F, c.hidden_scale, d_hidden, d_hidden);
  if (!plain) activate_backward(c.activation, r.n * c.F, hidden, d_hidden);
  if (c.pre_norm) {
    product(r.n, c.F, c.D, d_hidden, c.F, layer.fc1_t.panels, c.F * PANEL, {}, kept, c.D);
    layer_norm_backward(r.n, c.D, kept, input, layer.ffn_norm, c.eps, true, dx);
  } else {
    e = {};
    e.then = Then::add, e.other = dx, e.stride = c.D;
    product(r.n, c.F, c.D, d_hidden, c.F, layer.fc1_t.panels, c.F * PANEL, e, dx, c.D);
  }

  // Attention to the memory.
  kept = r.by_layer(k.d_attn_norm, k.tile_steps, l, i, c.D);
  input = c.pre_norm ? r.by_layer(c.x_ATBD, R, l, at, c.D) : r.by_layer(c.attention_sum, R, l, at, c.D);
  if (!c.pre_norm) {
    memcpy(kept, dx, size * sizeof(float));
    layer_norm_backward(r.n, c.D, kept, input, layer.attn_norm, c.eps, false, dx);
  }
  d_out = r.by_layer(k.d_attention, k.tile_steps, l, i, c.D);
  if (c.attention_residual_keep) drop(size, c.attention_residual_keep + step * c.D, c.attention_residual_scale, dx, d_out);
  else memcpy(d_out, dx, size * sizeof(float));
  float *da = r.by_step(k.da, i, l, r.X), *dq = r.by_step(k.dq, i, l, r.X);
  product(r.n, c.D, r.X, d_out, c.D, layer.out_t.panels, c.D * PANEL, {}, da, r.X);
  attend_backward(r, k, l, i, da, dq, scratch);
  if (l == 0) return;  // its queries depend on the embedding alone: they follow at the tile's end, all steps at once
  if (c.pre_norm) {
    product(r.n, r.X, c.D, dq, r.X, layer.query_t.panels, r.X * PANEL, {}, kept, c.D);
    layer_norm_backward(r.n, c.D, kept, input, layer.attn_norm, c.eps, true, dx);
  } else {
    e = {};
    e.then = Then::add, e.other = dx, e.stride = c.D;
    product(r.n, r.X, c.D, dq, r.X, layer.query_t.panels, r.X * PANEL, e, dx, c.D);
  }
}

}  // namespace

extern "C" {

int64_t fb_vector_length() { return VL; }
int64_t fb_panel() { return PANEL; }

void fb_pack(const float* W, int64_t K, int64_t N, int64_t row, int64_t column, float* out) { pack_matrix(W, K, N, row, column, out); }

// The panels of slots that are there as rows, for `heads` streams and heads.
void fb_fill_panels(const float* rows, int64_t heads, int64_t slots, int64_t filled, int64_t E, float* panels) {
  const long size = slot_panels(slots) * VL;
  for (long head = 0; head < heads; head++)
    for (long s = 0; s < filled; s++)
      for (long e = 0; e < E; e++) panels[(head * size + s / VL * VL) * E + e * VL + s % VL] = rows[(head * slots + s) * E + e];
}

// Steps first … last - 1, to the record from step `at` on. With `again`, memories and slots are there already.
void fb_forward(const BlockArgs* args, int64_t b0, int64_t b1, int64_t first, int64_t last, int64_t at, int64_t again) {
  const BlockArgs& c = *args;
  const Range r(c, b0, b1);
  const bool keep = c.record_steps > 1 || again;
  float* scratch = r.scratch();
  for (long t = first; t < last; t++) {
    const long place = keep ? at + t - first : 0;
    memcpy(r.by_layer(c.x_ATBD, c.record_steps, 0, place, c.D), c.x + (t * c.B + b0) * c.D, r.n * c.D * sizeof(float));
    for (long l = 0; l < c.L; l++) run_layer(r, l, t, place, scratch);
    if (again) continue;
    if (c.out) memcpy(c.out + (t * c.B + b0) * c.D, r.by_layer(c.x_ATBD, c.record_steps, c.L, place, c.D), r.n * c.D * sizeof(float));
    for (long m = 0; m < c.K; m++) {
      float* memory = r.by_layer(c.memory, c.T, m, t, c.D);
      memset(memory, 0, r.n * c.D * sizeof(float));
      for (long l = 0; l <= c.L; l++) {
        const float weight = c.mix[m * (c.L + 1) + l];
        if (weight != 0) add_scaled(r.n * c.D, weight, r.by_layer(c.x_ATBD, c.record_steps, l, place, c.D), memory);
      }
    }
    if (t + 1 < c.T) project(r, t, scratch);
  }
}

// The steps of a tile, from the last to the first.
void fb_backward(const BlockArgs* args, const TileArgs* tile, int64_t b0, int64_t b1) {
  const BlockArgs& c = *args;
  const TileArgs& k = *tile;
  const Range r(c, b0, b1);
  const long size = r.n * c.D;
  float *dx = r.scratch(), *scratch = dx + size;
  for (long i = k.steps - 1; i >= 0; i--) {
    const long t = k.first + i;
    memory_backward(r, k, i, scratch);
    memcpy(dx, k.d_out + (t * c.B + b0) * c.D, size * sizeof(float));
    for (long l = c.L; l >= 0; l--) {
      if (l < c.L && c.layers[l].active) layer_backward(r, k, l, i, dx, scratch);
      for (long m = 0; m < c.K; m++) {
        const float weight = c.mix[m * (c.L + 1) + l];
        if (weight != 0) add_scaled(size, weight, r.by_layer(k.d_memory, k.tile_steps, m, i, c.D), dx);
      }
    }
    memcpy(k.d_x + (t * c.B + b0) * c.D, dx, size * sizeof(float));
  }
}
}
