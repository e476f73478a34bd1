import { describe } from 'node:test'
import { assert, parallel } from './support.mjs'
import { chartCell, row } from './interpreter.mjs'

const chart = async (sandbox, name) => {
  const { results, error } = await sandbox.runCode(chartCell(name))
  assert.equal(error, undefined)
  assert.ok(results[0].png)
  return results[0].chart
}
const numbers = (values) => assert.ok(values.length > 0 && values.every((value) => typeof value === 'number'), JSON.stringify(values))
const pick = (elements, field) => elements.map((element) => element[field])

describe('charts', parallel, () => {
  row('charts/bar: values, labels, groups', {}, async ({ sandbox }) => {
    const got = await chart(sandbox, 'bar')
    assert.deepEqual([got.type, got.title, got.x_label, got.y_label, got.x_unit, got.y_unit],
                     ['bar', 'Book Sales by Authors', 'Authors', 'Number of Books Sold', null, null])
    assert.deepEqual(got.elements, ['A', 'B', 'C', 'D'].map((letter, i) =>
      ({ label: `Author ${letter}`, group: 'Books Sold', value: 100 * (i + 1) })))
  })

  row('charts/box: five numbers and outliers', {}, async ({ sandbox }) => {
    const got = await chart(sandbox, 'box')
    assert.deepEqual([got.type, got.title, got.x_label, got.y_label, got.x_unit, got.y_unit],
                     ['box_and_whisker', 'Exam Scores Distribution', 'Class', 'Score', null, null])
    assert.deepEqual(pick(got.elements, 'label'), ['Class A', 'Class B', 'Class C'])
    assert.deepEqual(pick(got.elements, 'outliers'), [[], [76], []])
    assert.deepEqual(pick(got.elements, 'min'), [78, 84, 75])
    assert.deepEqual(pick(got.elements, 'first_quartile'), [85, 84.75, 79])
    assert.deepEqual(pick(got.elements, 'median'), [88, 88, 82])
    assert.deepEqual(pick(got.elements, 'third_quartile'), [90, 90.5, 86])
    assert.deepEqual(pick(got.elements, 'max'), [92, 95, 88])
  })

  row('charts/line: dates, units, two lines', {}, async ({ sandbox }) => {
    const got = await chart(sandbox, 'line')
    assert.deepEqual([got.type, got.title, got.x_label, got.y_label, got.x_unit, got.y_unit, got.x_scale, got.y_scale],
                     ['line', 'Plot of sin(x) and cos(x)', 'Time (s)', 'Amplitude (Hz)', 's', 'Hz', 'datetime', 'linear'])
    assert.ok(got.x_ticks.every((tick) => typeof tick === 'string' && !Number.isNaN(Date.parse(tick))))
    numbers(got.y_ticks)
    assert.ok([...got.x_tick_labels, ...got.y_tick_labels].every((text) => typeof text === 'string'))
    assert.deepEqual(pick(got.elements, 'label'), ['sin(x)', 'cos(x)'])
    for (const { points } of got.elements) {
      assert.equal(points.length, 100)
      assert.ok(points.every(([x, y]) => typeof x === 'string' && typeof y === 'number'))
      assert.equal(new Date(points[0][0]).getTime(), Date.UTC(2023, 8, 1))
    }
  })

  row('charts/log: logarithmic axis', {}, async ({ sandbox }) => {
    const got = await chart(sandbox, 'log')
    assert.deepEqual([got.type, got.title, got.x_label, got.y_label, got.x_unit, got.y_unit, got.x_scale, got.y_scale],
                     ['line', 'Chart with Log Scale on Y-axis', 'X-axis', 'Y-axis (log scale)', null, 'log scale', 'linear', 'log'])
    numbers(got.x_ticks)
    numbers(got.y_ticks)
    assert.deepEqual(pick(got.elements, 'label'), ['y = e^x'])
    assert.equal(got.elements[0].points.length, 100)
    got.elements[0].points.forEach(numbers)
  })

  row('charts/pie: angles', {}, async ({ sandbox }) => {
    const got = await chart(sandbox, 'pie')
    assert.deepEqual([got.type, got.title], ['pie', 'Will I wake up early tomorrow?'])
    assert.deepEqual(got.elements, [{ label: 'No', angle: 324, radius: 1 }, { label: 'No, in blue', angle: 36, radius: 1 }])
  })

  for (const [name, x, y] of [['datetime', 'datetime', 'linear'], ['categorical', 'linear', 'categorical']]) {
    row(`charts/scale: ${name}`, {}, async ({ sandbox }) => {
      const got = await chart(sandbox, `scale-${name}`)
      assert.deepEqual([got.type, got.x_scale, got.y_scale], ['line', x, y])
    })
  }

  row('charts/scatter: two datasets', {}, async ({ sandbox }) => {
    const got = await chart(sandbox, 'scatter')
    assert.deepEqual([got.type, got.title, got.x_label, got.y_label, got.x_scale, got.y_scale], ['scatter', null, 'A', 'B', 'linear', 'linear'])
    numbers(got.x_ticks)
    numbers(got.y_ticks)
    assert.deepEqual(got.elements.map(({ label, points }) => [label, points.length]), [['Dataset 1', 5], ['Dataset 2', 10]])
    got.elements.forEach(({ points }) => points.forEach(numbers))
  })

  row('charts/superchart: two in one figure', {}, async ({ sandbox }) => {
    const got = await chart(sandbox, 'superchart')
    assert.deepEqual([got.type, got.title, got.elements.length], ['superchart', 'Multiple Charts Example', 2])
    const [line, scatter] = got.elements
    assert.deepEqual([line.type, line.title, line.x_label, line.y_label, line.elements.length, line.elements[0].points.length],
                     ['line', 'Sine Wave', null, null, 1, 100])
    assert.deepEqual([scatter.type, scatter.title, scatter.x_label, scatter.y_label, scatter.elements.length, scatter.elements[0].points.length],
                     ['scatter', 'Scatter Plot', 'X', 'Y', 1, 5])
  })

  row('charts/unknown: other artists', {}, async ({ sandbox }) => {
    const got = await chart(sandbox, 'unknown')
    assert.deepEqual([got.type, got.title, got.elements], ['unknown', 'Two Concentric Circles', []])
  })
})
