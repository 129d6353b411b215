// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/kvstore/kvstoretest"
	"github.com/skep-operator/skep/resources/mirror"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
)

func TestMain(m *testing.M) { operatortest.Main(m) }

// thing has a value; part is a part of one.
type thing struct {
	slim.Meta `json:"metadata"`
	Value     string `json:"value"`
}

type part struct {
	slim.Meta `json:"metadata"`
	Of        string `json:"of"`
}

var (
	things = stream.Custom[thing](schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "things"})
	parts  = stream.Custom[part](schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "parts"})

	byThing = stream.NewIndex("thing", func(p *part, add func(string)) { add(p.Of) })
)

const folder = "cilium/state/things/v1/default/"

// mapper copies things with the number of their parts. It is shared by all controllers of a test.
type mapper struct {
	things *stream.Local[thing]
	parts  *stream.Local[part]
	calls  atomic.Int32
	opens  atomic.Int32

	mu     sync.Mutex
	hidden map[slim.Key]bool
}

func newMapper(t *testing.T) *mapper {
	t.Helper()
	local, err := stream.NewLocal[thing]()
	more, err2 := stream.NewLocal[part]()
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	return &mapper{things: local, parts: more, hidden: map[slim.Key]bool{}}
}

func (m *mapper) hide(name string, hidden bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hidden[slim.Key{Name: name}] = hidden
}

func (m *mapper) isHidden(key slim.Key) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.hidden[key]
}

type controller struct {
	*mapper
	things *stream.Store[thing]
	parts  *stream.Store[part]
}

func (c *controller) Open(ctx context.Context) (err error) {
	if c.opens.Add(1) == 1 {
		return errors.New("the first attempt fails")
	}
	if c.things, err = c.mapper.things.Store(ctx); err != nil {
		return err
	}
	c.parts, err = c.mapper.parts.Store(ctx)
	return err
}

func (c *controller) Desired(key slim.Key) ([]byte, bool) {
	c.calls.Add(1)
	o, exists := c.things.Get(key)
	switch {
	case c.isHidden(key):
		return nil, false
	case key.Name == "bad":
		panic("oops")
	case !exists:
		return nil, true
	}
	return fmt.Appendf(nil, "%s/%d", o.Value, stream.CountByIndex(c.parts, byThing, key.Name)), true
}

func (m *mapper) start(t *testing.T, etcd *kvstoretest.Etcd) *operatortest.Operator {
	t.Helper()
	duty := cell.Module("things", "Mirrors things",
		cell.Provide(func() stream.Resource[thing] { return m.things }, func() stream.Resource[part] { return m.parts }),
		mirror.Controller("cilium/state/things/v1", func() *controller { return &controller{mapper: m} },
			mirror.For[*controller](things),
			mirror.Watches(parts, func(_ *controller, ch stream.Change[part]) []slim.Key { return []slim.Key{{Name: ch.Object.Of}} }),
		),
	)
	return operatortest.Start(t, cell.Set(kvstore.Cell, duty), "", kvstoretest.Args(etcd.Endpoints()[0])...)
}

func value(etcd *kvstoretest.Etcd, name string) string {
	if kv := etcd.Get(folder + name); kv != nil {
		return string(kv.Value)
	}
	return ""
}

func newThing(name, value string) *thing { return &thing{slim.Meta{Name: name}, value} }
func newPart(name, of string) *part      { return &part{slim.Meta{Name: name}, of} }

// Keys are set once all streams are synced, with what all of them show; then by changes of any of them. Those of earlier
// processes are deleted, but for what cannot be decided. The write has its trigger.
func TestMirror(t *testing.T) {
	t.Parallel()
	etcd, m := kvstoretest.Start(t, 1), newMapper(t)
	lease := etcd.Grant(900e9)
	etcd.Put(folder+"a", "1/2", lease)
	for _, name := range []string{"stale", "hidden", "strange/name/of/it"} {
		etcd.Put(folder+name, "old", lease)
	}
	before := etcd.Revision()
	m.hide("hidden", true)
	m.things.Replace(newThing("a", "1"), newThing("b", "1"))
	probes, keys := etcd.Follow("cilium/.initlock/", before+1), etcd.Follow("cilium/s", before+1)
	op := m.start(t, etcd)
	operatortest.Eventually(t, "etcd is reached", func() bool { return probes.Puts() > 0 && m.opens.Load() > 1 })
	if len(keys.Events()) > 0 || m.calls.Load() > 0 {
		t.Error("there are writes or decisions before all is known")
	}
	m.parts.Replace(newPart("p1", "a"), newPart("p2", "a"))
	operatortest.Eventually(t, "the other key", func() bool { return value(etcd, "b") == "1/0" })
	operatortest.Eventually(t, "stale keys are deleted", func() bool {
		return etcd.Get(folder+"stale") == nil && etcd.Get(folder+"strange/name/of/it") == nil
	})
	if kv := etcd.Get(folder + "a"); kv.ModRevision > before {
		t.Errorf("an equal key was written: %v", kv)
	}
	m.parts.Upsert(newPart("p3", "b"))
	operatortest.Eventually(t, "a change of a part", func() bool { return value(etcd, "b") == "1/1" })
	m.things.Delete(slim.Key{Name: "a"})
	operatortest.Eventually(t, "a deletion", func() bool { return etcd.Get(folder+"a") == nil })
	if value(etcd, "hidden") != "old" {
		t.Error("a key that cannot be decided was deleted")
	}
	m.hide("b", true)
	m.things.Delete(slim.Key{Name: "b"})
	m.things.Upsert(newThing("c", "1"))
	operatortest.Eventually(t, "a later change", func() bool { return value(etcd, "c") == "1/0" })
	if value(etcd, "b") != "1/1" {
		t.Error("a key that cannot be decided was deleted")
	}
	for _, w := range op.Book.Writes(0) {
		if w.Resource+"/"+w.Name == folder+"b" && w.Module == "things" && w.Revision == fmt.Sprint(etcd.Get(folder+"b").ModRevision) {
			if len(w.Cause.Triggers) != 1 || w.Cause.Triggers[0].Name != "p3" || w.Cause.Triggers[0].Kind != "parts" {
				t.Errorf("the cause is %+v", w.Cause)
			}
			return
		}
	}
	t.Errorf("the write is not recorded: %+v", op.Book.Writes(0))
}

// K8S-19: a key for which the mapper panics stays as it is, and is named; the others are written.
func TestAKeyForWhichTheMapperPanicsStaysAsItIs(t *testing.T) {
	t.Parallel()
	etcd, m := kvstoretest.Start(t, 1), newMapper(t)
	lease := etcd.Grant(900e9)
	etcd.Put(folder+"bad", "old", lease)
	etcd.Put(folder+"stale", "old", lease)
	m.things.Replace(newThing("a", "1"), newThing("bad", "1"), newThing("c", "1"))
	m.parts.Replace()
	op := m.start(t, etcd)
	operatortest.Eventually(t, "the others are written", func() bool {
		return value(etcd, "a") == "1/0" && value(etcd, "c") == "1/0" && etcd.Get(folder+"stale") == nil
	})
	if value(etcd, "bad") != "old" {
		t.Errorf("the key is %q", value(etcd, "bad"))
	}
	if x := op.Book.For("things", "", "bad"); len(x.Decisions) == 0 || !strings.Contains(x.Decisions[len(x.Decisions)-1].Outcome, "panicked at resources/mirror_test/mirror_test.go:") {
		t.Errorf("explain says %+v", x)
	}
}

// One change among 10,000 objects costs one decision and one write.
func TestOneChange(t *testing.T) {
	t.Parallel()
	const count = 10_000
	etcd, m := kvstoretest.Start(t, 1), newMapper(t)
	var all []*thing
	for i := range count {
		all = append(all, newThing(fmt.Sprint(i), "1"))
	}
	m.things.Replace(all...)
	m.parts.Replace()
	m.start(t, etcd)
	operatortest.Eventually(t, "the synced marker", func() bool { return etcd.Get("cilium/synced/default/cilium/state/things/v1") != nil })
	if n := m.calls.Load(); n != count {
		t.Errorf("%d decisions for %d objects", n, count)
	}
	record := etcd.Follow("cilium/s", etcd.Revision()+1)
	m.parts.Upsert(newPart("p", "77"))
	operatortest.Eventually(t, "the change", func() bool { return value(etcd, "77") == "1/1" })
	m.parts.Upsert(newPart("q", "78"))
	operatortest.Eventually(t, "the next change is observed", func() bool { return len(record.Events()) >= 2 })
	if calls, writes := m.calls.Load()-count, len(record.Events()); calls != 2 || writes != 2 {
		t.Errorf("%d decisions and %d writes for two changes", calls, writes)
	}
}
