// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/skep-operator/skep/resources/agents"
	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/metrics"
)

// ID-14: each of the free numbers is drawn, with the same chance.
func TestDraw(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, in := range []identity.Range{{Min: 256, Max: 65535}, {Min: 65536, Max: 131071}, {Min: 256, Max: 256}, {Min: 300, Max: 363}, {Min: 300, Max: 364}, {Min: 7, Max: 77}} {
		n := newNumbers(in)
		all := map[identity.Number]bool{}
		for range in.Size() {
			number, ok := n.pick(r.IntN)
			if !ok || all[number] || !in.Contains(number) {
				t.Fatalf("%v: drew %d (%t) after %d", in, number, ok, len(all))
			}
			all[number] = true
			n.hold(number)
		}
		if number, ok := n.pick(r.IntN); ok || n.free() != 0 {
			t.Errorf("%v: drew %d of none", in, number)
		}
		for number := range all {
			n.release(number)
		}
		if n.free() != in.Size() || n.used() != 0 {
			t.Errorf("%v: %d are free again", in, n.free())
		}
	}
	n := newNumbers(identity.Range{Min: 300, Max: 399})
	for number := identity.Number(300); number < 390; number++ {
		n.hold(number)
	}
	times := map[identity.Number]int{}
	for range 10_000 {
		number, _ := n.pick(r.IntN)
		times[number]++
	}
	for number := identity.Number(390); number < 400; number++ {
		if times[number] < 800 || times[number] > 1200 {
			t.Errorf("%d was drawn %d times in 10000, of ten", number, times[number])
		}
	}
}

// ID-15.
func TestNumbersRest(t *testing.T) {
	n := newNumbers(identity.Range{Min: 300, Max: 301})
	now := time.Unix(0, 0)
	n.quarantine(300, now)
	n.quarantine(301, now.Add(time.Minute))
	for _, test := range []struct {
		at   time.Duration
		free int
	}{{0, 0}, {quarantinePeriod - 1, 0}, {quarantinePeriod, 1}, {quarantinePeriod + time.Minute - 1, 1}, {quarantinePeriod + time.Minute, 2}} {
		n.expire(now.Add(test.at))
		if n.free() != test.free {
			t.Errorf("%d are free after %s", n.free(), test.at)
		}
	}
}

// plan is a table with the default filter that draws the lowest number, counts what
// it computes, and begins when it has seen a namespace.
func plan(t testing.TB, namespaces ...string) (tb *table, computed *int) {
	t.Helper()
	computed = new(int)
	tb = newTable("c", identity.Range{Min: 256, Max: 65535}, makeFilters(nil, nil), agents.NewFleet(release.Configured{}), func(int) int { return 0 })
	for i, asked := range tb.keeps {
		tb.keeps[i] = func(source, key string) bool {
			if key == "io.kubernetes.pod.namespace" { // asked once for each set
				*computed++
			}
			return asked(source, key)
		}
	}
	for _, n := range namespaces {
		tb.upsertNamespace(namespaceOf(n, nil))
	}
	tb.markSynced()
	return tb, computed
}

func namespaceOf(name string, labels pairs) *slim.Namespace {
	n := &slim.Namespace{}
	n.Name, n.Labels = name, slim.MakeLabels(labels)
	return n
}

func podOf(namespace, name string, labels pairs) *slim.Pod {
	p := &slim.Pod{}
	p.Name, p.Namespace, p.Labels = name, slim.MakeString(namespace), slim.MakeLabels(labels)
	return p
}

// labelsOf are those of the identity of a pod in namespace n.
func labelsOf(t *table, name string) slim.Labels {
	p, _ := t.pods.Get(slim.Key{Namespace: "n", Name: name})
	return p.template.set.labels
}

func identityOf(number identity.Number, of slim.Labels, revision slim.Revision) *ciliumio.Identity {
	i := &ciliumio.Identity{SecurityLabels: of}
	i.Name, i.ResourceVersion, i.CreationTimestamp = number.String(), revision, 1
	return i
}

// ID-25: as often as there are templates, and only if labels count that changed.
func TestNamespaceIsComputedOncePerTemplate(t *testing.T) {
	tb, computed := plan(t, "n", "other")
	for i := range 1000 {
		tb.upsertPod(podOf("n", fmt.Sprint("p", i), pairs{"app": fmt.Sprint(i % 10)}))
		tb.upsertPod(podOf("other", fmt.Sprint("p", i), pairs{"app": "x"}))
	}
	if *computed != 11 {
		t.Errorf("the labels of 2000 pods of 11 templates were computed %d times", *computed)
	}
	tb.drain()
	*computed = 0
	tb.upsertNamespace(namespaceOf("n", pairs{"kubernetes.io/x": "kept, too", "team": "a"}))
	touched, _ := tb.drain()
	if *computed != 10 || len(touched) != 10 {
		t.Errorf("computed %d times, %d sets are looked at", *computed, len(touched))
	}
	tb.upsertNamespace(namespaceOf("n", pairs{"team": "a", "kubernetes.io/x": "kept, too"}))
	if touched, _ = tb.drain(); *computed != 10 || len(touched) != 0 {
		t.Errorf("for nothing: computed %d times, %d sets are looked at", *computed-10, len(touched))
	}
	if err := tb.consistent(); err != nil {
		t.Error(err)
	}
}

// Nothing is kept of a template that no pod has any more.
func TestTableForgets(t *testing.T) {
	tb, _ := plan(t, "n")
	for round := range 3 {
		for i := range 100 {
			tb.upsertPod(podOf("n", fmt.Sprint("p", i), pairs{"app": fmt.Sprint(i, round)}))
			tb.upsertPod(podOf("later", fmt.Sprint("p", i), pairs{"app": fmt.Sprint(i, round)}))
			far := podOf("n", fmt.Sprint("far", i), nil)
			far.Spec.NodeName = slim.MakeString("virtual")
			if why := tb.upsertPod(far); why != unmanagedNode {
				t.Fatalf("a pod far away: %s", why)
			}
		}
	}
	if len(tb.sets) != 100 || tb.pods.Len() != 300 {
		t.Errorf("there are %d sets of %d pods", len(tb.sets), tb.pods.Len())
	}
	for i := range 100 {
		tb.deletePod(slim.Key{Namespace: "n", Name: fmt.Sprint("p", i)})
		tb.deletePod(slim.Key{Namespace: "later", Name: fmt.Sprint("p", i)})
		tb.deletePod(slim.Key{Namespace: "n", Name: fmt.Sprint("far", i)})
	}
	tb.deleteNamespace("n")
	if n := len(tb.sets) + tb.pods.Len() + len(tb.namespaces) + len(tb.unmanaged) + len(tb.owners); n != 0 || tb.used != 0 || tb.numbers.used() != 0 {
		t.Errorf("%d are left, %d in use, %d taken", n, tb.used, tb.numbers.used())
	}
}

// ID-11: a CiliumNode that goes for a moment takes nothing away.
func TestNodeGoesAndComes(t *testing.T) {
	tb, _ := plan(t, "n")
	p := podOf("n", "p", pairs{"app": "x"})
	if why := tb.upsertPod(p); why != "" {
		t.Error(why)
	}
	bound := podOf("n", "p", pairs{"app": "x"})
	bound.Spec.NodeName = slim.MakeString("a")
	if why := tb.upsertPod(bound); why != unmanagedNode || tb.used != 0 {
		t.Errorf("%q, %d used", why, tb.used)
	}
	tb.addNode("a")
	if tb.used != 1 {
		t.Error("its CiliumNode is there, and it does not count")
	}
	tb.deleteNode("a")
	if why := tb.upsertPod(bound); why != "" || tb.used != 1 {
		t.Errorf("%q, %d used", why, tb.used)
	}
	elsewhere := podOf("n", "p", pairs{"app": "x"})
	elsewhere.Spec.NodeName = slim.MakeString("b")
	if why := tb.upsertPod(elsewhere); why != unmanagedNode || tb.used != 0 {
		t.Errorf("%q, %d used", why, tb.used)
	}
	if err := tb.consistent(); err != nil {
		t.Error(err)
	}
}

// ID-13.
func TestNothingKept(t *testing.T) {
	tb, _ := plan(t, "n")
	for i := range tb.keeps {
		tb.keeps[i] = func(string, string) bool { return false }
	}
	if why := tb.upsertPod(podOf("n", "p", pairs{"app": "x"})); why != noLabelKept || len(tb.sets) != 0 {
		t.Errorf("%q, %d sets", why, len(tb.sets))
	}
}

// Number 29 of the contract's endpoint-slices.md; ID-17, ID-18 and ID-21, in all combinations.
func TestChosenIdentityIsDeleted(t *testing.T) {
	for _, test := range []struct {
		name           string
		pods, carried  bool
		other          bool
		want           identity.Number
		wantsToBeMade  bool
		remembersOther bool
	}{
		{"nobody needs it", false, false, false, 0, false, false},
		{"pods", true, false, false, 300, true, false},
		{"an endpoint", false, true, false, 300, true, false},
		{"pods, and another is there", true, false, true, 400, false, true},
		{"pods and an endpoint, and another is there", true, true, true, 300, true, true},
		{"another is there", false, false, true, 0, false, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			tb, _ := plan(t, "n")
			tb.inUseByEndpoint = func(n identity.Number) bool { return test.carried && n == 300 }
			tb.upsertPod(podOf("n", "p", pairs{"app": "x"}))
			of := labelsOf(tb, "p")
			tb.upsertObject(identityOf(300, of, 1))
			if test.other {
				tb.upsertObject(identityOf(400, of, 2))
			}
			if !test.pods {
				tb.deletePod(slim.Key{Namespace: "n", Name: "p"})
			}
			tb.deleteObject("300", 1)
			todo := tb.nextAction(of)
			var chosen identity.Number
			if s := tb.sets[of]; s != nil {
				chosen = s.number
			}
			if chosen != test.want || (todo.number == 300) != test.wantsToBeMade {
				t.Errorf("chosen is %d, to be made %d (%s)", chosen, todo.number, todo.reason)
			}
			if err := tb.consistent(); err != nil {
				t.Error(err)
			}
		})
	}
}

// ID-16: a name without an identity takes no number and has no user.
func TestNamesThatStandForNothing(t *testing.T) {
	tb, _ := plan(t, "n")
	for _, name := range []string{"foo", "0300", "+300", "255", "65536", "70000", "-1", ""} {
		i := identityOf(300, slim.MakeLabels(pairs{"k8s:a": "b"}), 1)
		i.Name = name
		tb.upsertObject(i)
		tb.deleteObject(name, 1)
	}
	if len(tb.objects)+len(tb.sets)+tb.numbers.used() != 0 {
		t.Errorf("%d objects, %d sets, %d numbers taken", len(tb.objects), len(tb.sets), tb.numbers.used())
	}
	tb.upsertObject(identityOf(300, slim.Labels{}, 1))
	if len(tb.objects) != 1 || len(tb.sets) != 0 || tb.numbers.used() != 1 {
		t.Errorf("without labels: %d objects, %d sets, %d numbers taken", len(tb.objects), len(tb.sets), tb.numbers.used())
	}
}

// ID-31.
func TestPressure(t *testing.T) {
	p := &utilization{}
	var told []int
	for _, percent := range []int{0, 49, 50, 74, 49, 51, 80, 71, 76, 69, 76, 95, 86, 95, 10, 92} {
		if p.crossed(percent) {
			told = append(told, percent)
		}
	}
	if want := []int{50, 80, 95, 92}; !slices.Equal(told, want) {
		t.Errorf("told at %v, not %v", told, want)
	}
}

// ID-23 and ID-31: what users see when numbers run out, and when they are back.
func TestNumbersRunOut(t *testing.T) {
	var log bytes.Buffer
	tree := health.NewTree()
	tb := newTable("c", identity.Range{Min: 256, Max: 265}, makeFilters(nil, nil), agents.NewFleet(release.Configured{}), func(int) int { return 0 })
	m := &controller{params: params{Metrics: newMetrics(metrics.Factory{}), Log: slog.New(slog.NewTextHandler(&log, nil)), Health: tree.Reporter("identity")}, table: tb, synced: make(chan struct{})}
	queue := map[slim.Labels]bool{}
	m.enqueue = func(of slim.Labels, _ ...k8s.Trigger) { queue[of] = true }
	m.update(func(t *table) {
		t.upsertNamespace(namespaceOf("n", nil))
		t.markSynced()
	})
	told := &utilization{}
	for i := range 11 {
		m.updateAndEnqueue(func(t *table) {
			t.upsertPod(podOf("n", fmt.Sprint("p", i), pairs{"app": fmt.Sprint(i), "hash": fmt.Sprint(i / 5)}))
		})
		for of := range queue {
			delete(queue, of)
			m.update(func(t *table) {
				if todo := t.nextAction(of); todo.number != 0 {
					t.recordCreate(of, observation{number: todo.number, labels: of, created: 1, revision: slim.Revision(i + 1)}, true)
				} else if todo.reason != noneFree {
					panic(todo.reason)
				}
			})
		}
		m.reportUtilization(told)
	}
	lines := strings.Count(log.String(), "\n")
	if lines != 3 || !strings.Contains(log.String(), "k8s:app (5), k8s:hash (1)") || !strings.Contains(log.String(), "usedPercent=90 min=256 max=265") {
		t.Errorf("the log says:\n%s", log.String())
	}
	degraded := tree.Degraded()
	if len(degraded) != 1 || !strings.Contains(degraded[0].Message, "1 sets of labels wait") {
		t.Errorf("health says %+v", degraded)
	}
	m.update(func(t *table) { t.deletePod(slim.Key{Namespace: "n", Name: "p0"}); t.deleteObject("256", 1) })
	m.updateAndEnqueue((*table).expireQuarantine)
	if len(queue) != 0 {
		t.Error("a number that rests is given out")
	}
	m.mu.Lock()
	tb.numbers.expire(time.Now().Add(quarantinePeriod))
	m.mu.Unlock()
	m.updateAndEnqueue((*table).expireQuarantine)
	if len(queue) != 1 {
		t.Errorf("%d are looked at", len(queue))
	}
	for of := range queue {
		m.update(func(t *table) {
			if todo := t.nextAction(of); todo.number != 256 {
				panic(fmt.Sprint(todo))
			}
			t.recordCreate(of, observation{number: 256, labels: of, created: 2, revision: 100}, true)
			t.deletePod(slim.Key{Namespace: "n", Name: "p1"})
			t.deleteObject("257", 2)
			t.numbers.expire(t.now.Add(quarantinePeriod))
		})
	}
	m.reportUtilization(told)
	if d := tree.Degraded(); len(d) != 1 || d[0].Message != "90% of the numbers for identities are in use" {
		t.Errorf("health says %+v", d)
	}
}

// ID-30: who observes hears of each pod whose answer changes, and of no other.
func TestObserve(t *testing.T) {
	tb, _ := plan(t, "n")
	m := &controller{params: params{Metrics: newMetrics(metrics.Factory{})}, table: tb, synced: make(chan struct{})}
	m.enqueue = func(slim.Labels, ...k8s.Trigger) {}
	type answer struct {
		number identity.Number
		exists bool
	}
	heard := map[types.NamespacedName]answer{}
	cancel := m.Observe(func(pod types.NamespacedName) {
		n, exists := m.ForPod(pod)
		heard[pod] = answer{n, exists}
	})
	var of slim.Labels
	steps := []struct {
		name string
		do   func(*table)
		want map[types.NamespacedName]answer
	}{
		{"pods", func(t *table) {
			t.upsertPod(podOf("n", "a", pairs{"app": "x"}))
			t.upsertPod(podOf("n", "b", pairs{"app": "x"}))
			t.upsertPod(podOf("n", "c", pairs{"app": "y"}))
			of = labelsOf(t, "a")
		}, nil},
		{"made", func(t *table) {
			t.recordCreate(of, observation{number: t.nextAction(of).number, labels: of, created: 1, revision: 1}, true)
		}, map[types.NamespacedName]answer{podName("n", "a"): {256, true}, podName("n", "b"): {256, true}}},
		{"seen", func(t *table) { t.upsertObject(identityOf(256, of, 1)) }, nil},
		{"one more", func(t *table) { t.upsertPod(podOf("n", "d", pairs{"app": "x"})) }, map[types.NamespacedName]answer{podName("n", "d"): {256, true}}},
		{"deleted", func(t *table) { t.deleteObject("256", 1) }, map[types.NamespacedName]answer{podName("n", "a"): {256, false}, podName("n", "b"): {256, false}, podName("n", "d"): {256, false}}},
		{"made again", func(t *table) {
			t.recordCreate(of, observation{number: t.nextAction(of).number, labels: of, created: 3, revision: 3}, true)
		}, map[types.NamespacedName]answer{podName("n", "a"): {256, true}, podName("n", "b"): {256, true}, podName("n", "d"): {256, true}}},
		{"other labels", func(t *table) { t.upsertPod(podOf("n", "a", pairs{"app": "z"})) }, map[types.NamespacedName]answer{podName("n", "a"): {0, false}}},
		{"gone", func(t *table) { t.deletePod(slim.Key{Namespace: "n", Name: "b"}) }, map[types.NamespacedName]answer{podName("n", "b"): {0, false}}},
	}
	for _, step := range steps {
		clear(heard)
		m.update(step.do)
		want := step.want
		if want == nil {
			want = map[types.NamespacedName]answer{}
		}
		for pod := range heard { // changes that come to nothing may be told
			if heard[pod] == (answer{}) && want[pod] == (answer{}) {
				delete(heard, pod)
				delete(want, pod)
			}
		}
		if diff := cmp.Diff(want, heard, cmp.AllowUnexported(answer{})); diff != "" {
			t.Errorf("%s: %s", step.name, diff)
		}
	}
	if !m.Wanted(256) || m.Wanted(257) {
		t.Errorf("256 is wanted: %t, 257: %t", m.Wanted(256), m.Wanted(257))
	}
	cancel()
	clear(heard)
	m.update(func(t *table) { t.deletePod(slim.Key{Namespace: "n", Name: "d"}) })
	if len(heard) != 0 {
		t.Errorf("heard %v after the end", heard)
	}
}

// What the table keeps of a pod, beside what the stream keeps.
func TestMemory(t *testing.T) {
	const pods = 20_000
	tb, _ := plan(t, "n")
	all := make([]*slim.Pod, pods)
	for i := range all {
		all[i] = podOf("n", fmt.Sprint("pod-with-a-name-", i), pairs{"app": fmt.Sprint(i % 200)})
	}
	heap := func() uint64 {
		runtime.GC()
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return s.HeapAlloc
	}
	before := heap()
	for _, p := range all {
		tb.upsertPod(p)
	}
	each := (heap() - before) / pods
	t.Logf("%d bytes for each pod", each)
	if each > 250 {
		t.Errorf("it keeps %d bytes for each pod", each)
	}
	runtime.KeepAlive(tb)
	runtime.KeepAlive(all)
}

// BenchmarkSeePod is a pod of a template that is known.
func BenchmarkSeePod(b *testing.B) {
	tb, _ := plan(b, "n")
	tb.synced = false
	pods := make([]*slim.Pod, 10_000)
	for i := range pods {
		pods[i] = podOf("n", fmt.Sprint("p", i), pairs{"app": fmt.Sprint(i % 100)})
	}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		tb.upsertPod(pods[n%len(pods)])
		if n++; n%len(pods) == 0 {
			for _, p := range pods {
				tb.deletePod(p.Key())
			}
		}
	}
}

// K8S-22: the work for label sets is fair by the namespace of their pods.
func TestALabelSetIsOfTheNamespaceOfItsPods(t *testing.T) {
	tb, _ := plan(t, "n")
	tb.upsertPod(podOf("n", "web", pairs{"app": "web"}))
	if got := podNamespace(labelsOf(tb, "web")); got != "n" {
		t.Errorf("the namespace is %q", got)
	}
}
