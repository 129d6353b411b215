// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package secretref

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skep-operator/skep/resources/stream/slim"
)

// namesModel is what the names of copies are compared with: copies and configurations, which outlive a leader, and what the leader gave.
type namesModel struct {
	t       *testing.T
	r       *rand.Rand
	now     time.Time
	n       *Names
	copies  map[string]Object
	configs []configuration

	given  map[Object]string // by Of, since the object was released
	owners map[string]Object // of names that are in use
	freed  map[string]freed  // of those that were
}

// configuration is one that has the name of a copy.
type configuration struct {
	name   string
	means  Object
	by     string // its namespace, "" for the one that Ingresses share
	isLost bool   // no copy shows the leader what it means
}

type freed struct {
	of Object
	at time.Time
}

// lead begins with another leader.
func (m *namesModel) lead() {
	m.n = NewNames()
	m.n.now = func() time.Time { return m.now }
	m.given, m.owners, m.freed = map[Object]string{}, maps.Clone(m.copies), map[string]freed{}
	for i := range m.configs {
		c := &m.configs[i]
		c.isLost = c.isLost || m.copies[c.name] != c.means
		m.hold(*c)
	}
	names := slices.Sorted(maps.Keys(m.copies))
	m.r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, name := range names {
		m.n.Exists("c", name, m.copies[name])
	}
	m.n.MarkKnown()
}

// step does one thing at random.
func (m *namesModel) step() {
	o := object(strings.Repeat("a-", m.r.IntN(3))+"a", strings.Repeat("a-", m.r.IntN(3))+fmt.Sprint("b", m.r.IntN(2)))
	if m.r.IntN(6) == 0 {
		o = Object{ConfigMap, slim.Key{Namespace: "a", Name: "b0"}}
	}
	switch m.r.IntN(12) {
	case 0, 1:
		m.release(o)
	case 2:
		m.now = m.now.Add(time.Duration(1+m.r.IntN(3)) * reuse / 2)
	case 3:
		c := configuration{name: m.ask(o), means: o, by: []string{"", o.Namespace, "a", "a-a"}[m.r.IntN(4)]}
		m.configs = append(m.configs, c)
		m.hold(c)
	case 4:
		if len(m.configs) > 0 {
			i := m.r.IntN(len(m.configs))
			m.unhold(m.configs[i])
			m.configs = slices.Delete(m.configs, i, i+1)
		}
	case 5:
		if m.n.Plain("c", o) {
			m.use(o.CopyName(), o)
		}
	default:
		m.ask(o)
	}
}

// ask has an object given a name, and often a copy.
func (m *namesModel) ask(o Object) string {
	m.t.Helper()
	name := m.n.Of("c", o)
	was, known := m.given[o]
	if known && was != name {
		m.t.Fatalf("%s has %s, then %s", o, was, name)
	}
	has, hasOne := false, false
	for copied, of := range m.copies {
		hasOne = hasOne || of == o
		has = has || of == o && copied == name
	}
	if !known && hasOne && !has {
		m.t.Fatalf("%s is given %s, and has copies of other names: %v", o, name, m.copies)
	}
	m.given[o] = name
	m.use(name, o)
	m.check(m.n.Kept("c", o), o)
	if m.r.IntN(2) == 0 {
		m.copies[name] = o
		m.n.Exists("c", name, o)
	}
	return name
}

// use notes that an object has a name.
func (m *namesModel) use(name string, o Object) {
	m.t.Helper()
	m.check(name, o)
	m.owners[name] = o
	delete(m.freed, name)
}

// check reports a name that an object may not have.
func (m *namesModel) check(name string, o Object) {
	m.t.Helper()
	if has, used := m.owners[name]; used && has != o {
		m.t.Fatalf("%s is given to %s, and %s has it", name, o, has)
	}
	if f, was := m.freed[name]; was && f.of != o && m.now.Sub(f.at) < reuse {
		m.t.Fatalf("%s is given to %s, and was released by %s only %v ago", name, o, f.of, m.now.Sub(f.at))
	}
	for _, c := range m.configs {
		if c.name == name && c.means != o && !(c.isLost && (c.by == "" || c.by == o.Namespace)) {
			m.t.Fatalf("%s is given to %s, and a configuration of %q means %s", name, o, c.by, c.means)
		}
	}
}

// release has nothing refer to an object any more: its copies go.
func (m *namesModel) release(o Object) {
	maps.DeleteFunc(m.copies, func(_ string, of Object) bool { return of == o })
	m.n.Release(o)
	delete(m.given, o)
	for name, of := range m.owners {
		if of == o {
			delete(m.owners, name)
			m.freed[name] = freed{o, m.now}
		}
	}
}

// hold has the names know a configuration.
func (m *namesModel) hold(c configuration) {
	if c.by == "" {
		m.n.Keep("c", c.name)
	} else {
		m.n.Pin("c", c.name, c.by)
	}
}

// unhold has a configuration go.
func (m *namesModel) unhold(c configuration) {
	if c.by == "" {
		m.n.Unkeep("c", c.name)
	} else {
		m.n.Unpin("c", c.name, c.by)
	}
}
