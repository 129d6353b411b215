// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package render

import (
	"cmp"
	"math"
	"slices"

	"github.com/skep-operator/skep/runtime/graph"
)

// layout says in which column of a drawing each box stands. Graphviz does the
// rest. Left to itself, it puts everything that nothing points to into the
// first column, and a chain of a hundred boxes on a page a hundred boxes wide.
type layout struct {
	*drawing
	width   int            // columns
	column  map[string]int // by label
	row     map[string]int // by label of the outermost module, of chains that are folded
	wrapped bool
	heights map[string][]int // of the columns filled so far, by term
}

func newLayout(d *drawing) *layout {
	l := &layout{drawing: d, column: map[string]int{}, row: map[string]int{}, heights: map[string][]int{}}
	area := 0
	for _, term := range d.Scopes() {
		for _, m := range d.Shown(term) {
			area += l.height(m) * columnWidth
		}
	}
	l.width = max(4, int(math.Sqrt(float64(area)*pageShape))/columnWidth)
	l.assignRanks()
	islands := l.components()
	for _, island := range islands {
		l.placeUnlinked(island)
	}
	slices.SortStableFunc(islands, func(a, b []*graph.Module) int { return cmp.Compare(len(b), len(a)) })
	for _, island := range islands {
		l.place(island)
	}
	return l
}

const (
	columnWidth = 230 // points, with the space for lines between boxes
	pageShape   = 1.5 // width by height
)

// height is about how many points a box and the space below it take.
func (l *layout) height(m *graph.Module) int {
	text := m.Title
	if !m.Enabled {
		text = "off: " + m.ReasonOff()
	}
	return 42 + 13*(len(wrap(text, titleWidth))+len(l.annotations[m.Label()]))
}

// assignRanks gives each box the length of the longest chain of lines that leads to
// it. Where lines run in a circle, the one that closes it does not count.
func (l *layout) assignRanks() {
	into := map[string][]string{}
	for _, line := range l.lines {
		if line.To != "" {
			into[line.To] = append(into[line.To], line.From)
			l.column[line.From], l.column[line.To] = 0, 0
		}
	}
	done, open := map[string]bool{}, map[string]bool{}
	var visit func(string) int
	visit = func(label string) int {
		if !done[label] {
			open[label] = true
			for _, from := range into[label] {
				if !open[from] {
					l.column[label] = max(l.column[label], visit(from)+1)
				}
			}
			open[label], done[label] = false, true
		}
		return l.column[label]
	}
	for i := range l.Modules {
		if label := l.Modules[i].Label(); len(into[label]) > 0 {
			visit(label)
		}
	}
}

// components are the boxes that are connected by lines or by nesting, each in
// declaration order.
func (l *layout) components() [][]*graph.Module {
	leader := map[string]string{}
	find := func(label string) string {
		for leader[label] != "" {
			label = leader[label]
		}
		return label
	}
	join := func(a, b string) {
		if a, b = find(a), find(b); a != b {
			leader[a] = b
		}
	}
	for _, line := range l.lines {
		if line.To != "" {
			join(line.From, line.To)
		}
	}
	for i := range l.Modules {
		if m := &l.Modules[i]; m.Parent != "" {
			join(m.ID, m.Parent)
		}
	}
	at := map[string]int{}
	var islands [][]*graph.Module
	for _, term := range l.Scopes() {
		for _, m := range l.Shown(term) {
			first := find(m.Label())
			if _, known := at[first]; !known {
				at[first] = len(islands)
				islands = append(islands, nil)
			}
			islands[at[first]] = append(islands[at[first]], m)
		}
	}
	return islands
}

// placeUnlinked puts those boxes of an island that no line touches side by side with
// the module that they are nested in.
func (l *layout) placeUnlinked(island []*graph.Module) {
	beside := map[string]int{}
	for _, m := range island {
		if _, tied := l.column[m.Label()]; tied {
			continue
		}
		l.column[m.Label()] = 0
		if m.Parent != "" {
			beside[m.Parent]++
			side := int(math.Sqrt(float64(len(l.Nested[m.Parent])+1))) + 1
			l.column[m.Label()] = l.column[m.Parent] + beside[m.Parent]%side
		}
	}
}

// place moves an island to where the columns are least filled. One that is
// much wider than the page is folded into rows.
func (l *layout) place(island []*graph.Module) {
	last := 0
	for _, m := range island {
		last = max(last, l.column[m.Label()])
	}
	if last >= 2*l.width {
		l.wrapped = true
		for _, m := range island {
			if m.Parent == "" { // what is nested goes with it
				l.row[m.Label()] = l.column[m.Label()] / l.width
			}
			l.column[m.Label()] %= l.width
		}
		last = l.width - 1
	}
	best, lowest := 0, math.MaxInt
	for offset := range max(1, l.width-last) {
		if h := l.highest(island, offset); h < lowest {
			best, lowest = offset, h
		}
	}
	for _, m := range island {
		l.column[m.Label()] += best
		l.fill(m, l.column[m.Label()])
	}
}

// highest is the height of the highest column if an island is put at offset.
func (l *layout) highest(island []*graph.Module, offset int) int {
	highest := 0
	for _, m := range island {
		if c, filled := l.column[m.Label()]+offset, l.heights[m.Term]; c < len(filled) {
			highest = max(highest, filled[c])
		}
	}
	return highest
}

func (l *layout) fill(m *graph.Module, column int) {
	for len(l.heights[m.Term]) <= column {
		l.heights[m.Term] = append(l.heights[m.Term], 0)
	}
	l.heights[m.Term][column] += l.height(m)
}

// columns are the labels of the boxes in each column, of which there are two at
// least.
func (l *layout) columns() [][]string {
	columns := make([][]string, 2)
	for _, term := range l.Scopes() {
		for _, m := range l.Shown(term) {
			c := l.column[m.Label()]
			for len(columns) <= c {
				columns = append(columns, nil)
			}
			columns[c] = append(columns[c], m.Label())
		}
	}
	return columns
}
