// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslice

import (
	"context"
	"encoding/json"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// assigned is what pods are given by hand.
type assigned struct {
	mu       sync.Mutex
	numbers  map[types.NamespacedName]identity.Number
	see      func(types.NamespacedName)
	complete chan struct{}
}

func (a *assigned) ForPod(pod types.NamespacedName) (identity.Number, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n, ok := a.numbers[pod]
	return n, ok
}

func (a *assigned) Wanted(identity.Number) bool { return false }

func (a *assigned) All(types.NamespacedName) iter.Seq[identity.Number] {
	return slices.Values[[]identity.Number](nil)
}

func (a *assigned) Observe(see func(types.NamespacedName)) (cancel func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.see = see
	return func() {}
}

func (a *assigned) Complete() <-chan struct{} { return a.complete }

func (a *assigned) Whole() error { return nil }

func (a *assigned) set(pod slim.Key, n identity.Number) {
	a.mu.Lock()
	a.numbers[types.NamespacedName(pod)] = n
	if n == 0 {
		delete(a.numbers, types.NamespacedName(pod))
	}
	see := a.see
	a.mu.Unlock()
	if see != nil {
		see(types.NamespacedName(pod))
	}
}

func pod(name, ip string, change ...func(*slim.Pod)) *slim.Pod {
	p := &slim.Pod{}
	p.Name, p.Namespace = name, slim.MakeString("shop")
	p.Spec.NodeName, p.Status.HostIP = slim.MakeString("n1"), slim.ParseAddr("192.168.0.2")
	p.Spec.NamedPorts = slim.MakeNamedPorts(slim.NamedPort{Name: "http", Port: 8080, Protocol: "TCP"})
	if ip != "" {
		p.Status.PodIPs = []slim.PodIP{{IP: slim.ParseAddr(ip)}, {IP: slim.ParseAddr("fd00:1::5")}}
	}
	for _, c := range change {
		c(p)
	}
	return p
}

// Numbers 26, 28 and 29 of the contract's endpoint-slices.md; CES-23 to CES-25. Which identity is chosen of two with equal labels,
// number 29, is shown by TestChosenIdentityIsDeleted of the duty that gives them.
func TestPods(t *testing.T) {
	pods, err := stream.NewLocal[slim.Pod]()
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := stream.NewLocal[ciliumio.Node]()
	if err != nil {
		t.Fatal(err)
	}
	node := &ciliumio.Node{}
	node.Name, node.Spec.Encryption.Key = "n1", 3
	nodes.Replace(node)
	phase := func(text string) func(*slim.Pod) { return func(p *slim.Pod) { p.Status.Phase = slim.MakeString(text) } }
	pods.Replace(pod("web-1", "10.0.1.5", phase("Running")), pod("new", "10.0.1.6"), pod("early", "10.0.1.10", func(p *slim.Pod) { p.Spec.NodeName = slim.MakeString("n2") }), pod("done", "10.0.1.7", phase("Succeeded")), pod("failed", "10.0.1.8", phase("Failed")),
		pod("host", "192.168.0.2", func(p *slim.Pod) { p.Spec.HostNetwork = true }), pod("bare", ""), pod("pending", "10.0.1.9", func(p *slim.Pod) { p.Spec.NodeName = slim.String{} }))
	web := slim.Key{Namespace: "shop", Name: "web-1"}
	a := &assigned{numbers: map[types.NamespacedName]identity.Number{}, complete: make(chan struct{})}
	for _, name := range []string{"web-1", "early", "done", "failed", "host", "bare", "pending"} {
		a.numbers[types.NamespacedName{Namespace: "shop", Name: name}] = 300
	}

	f := newPodSource(pods, nodes, a, cluster.Config{EnableIPsec: true}, nil, slog.New(slog.DiscardHandler)).(*podSource)
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	seen, synced, ended := map[slim.Key]string{}, make(chan struct{}), make(chan struct{})
	text := func(key slim.Key, last int64) string {
		says, ok := f.content(key, last)
		if !ok {
			return ""
		}
		text, err := json.Marshal(says)
		if err != nil {
			t.Error(err)
		}
		return string(text)
	}
	go func() {
		defer close(ended)
		_ = f.watch(ctx, func(key slim.Key, _ k8s.Trigger) {
			mu.Lock()
			defer mu.Unlock()
			seen[key] = text(key, 0)
		}, func() { close(synced) })
	}()
	defer func() { cancel(); <-ended }()
	is := func(key slim.Key, want string) {
		t.Helper()
		operatortest.Eventually(t, key.String()+" is said to be "+want, func() bool {
			mu.Lock()
			defer mu.Unlock()
			got, ok := seen[key]
			return ok && got == want
		})
	}
	is(slim.Key{Namespace: "shop", Name: "pending"}, "")
	select {
	case <-synced:
		t.Error("it is said to know all before identities are complete")
	default:
	}
	close(a.complete)
	<-synced
	const rest = `,"networking":{"addressing":[{"ipv4":"10.0.1.5","ipv6":"fd00:1::5"}],"node":"192.168.0.2"},"encryption":{"key":3},"named-ports":[{"name":"http","port":8080,"protocol":"TCP"}]}`
	is(web, `{"name":"web-1","id":300`+rest)
	for _, name := range []string{"new", "early", "done", "failed", "host", "bare", "pending"} {
		is(slim.Key{Namespace: "shop", Name: name}, "")
	}
	appears := &ciliumio.Node{}
	appears.Name, appears.Spec.Encryption.Key = "n2", 5
	nodes.Upsert(appears)
	is(slim.Key{Namespace: "shop", Name: "early"}, `{"name":"early","id":300,"networking":{"addressing":[{"ipv4":"10.0.1.10","ipv6":"fd00:1::5"}],"node":"192.168.0.2"},`+
		`"encryption":{"key":5},"named-ports":[{"name":"http","port":8080,"protocol":"TCP"}]}`)
	// Its labels get another identity, which does not exist yet.
	a.set(web, 0)
	is(web, "")
	if got := text(web, 300); got != `{"name":"web-1","id":300`+rest {
		t.Errorf("meanwhile it is %s", got)
	}
	a.set(web, 301)
	is(web, `{"name":"web-1","id":301`+rest)
	changed := &ciliumio.Node{}
	changed.Name, changed.Spec.Encryption.Key = "n1", 4
	nodes.Upsert(changed)
	is(web, `{"name":"web-1","id":301,"networking":{"addressing":[{"ipv4":"10.0.1.5","ipv6":"fd00:1::5"}],"node":"192.168.0.2"},"encryption":{"key":4},"named-ports":[{"name":"http","port":8080,"protocol":"TCP"}]}`)
	pods.Delete(web)
	is(web, "")
}

// CES-27: what cannot be decoded of a pod, or of its node, is not told as if it were nothing.
func TestPodsThatCannotBeDecoded(t *testing.T) {
	codec, err := slim.JSON[ciliumio.Node]()
	if err != nil {
		t.Fatal(err)
	}
	node := func(rest string) *ciliumio.Node {
		n := &ciliumio.Node{}
		if err := codec.DecodeJSON([]byte(`{"metadata":{"name":"n1"},`+rest+`}`), n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	pods, err := stream.NewLocal[slim.Pod]()
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := stream.NewLocal[ciliumio.Node]()
	if err != nil {
		t.Fatal(err)
	}
	pods.Replace(pod("web", "10.0.1.5"), pod("bare", ""))
	nodes.Replace()
	f := newPodSource(pods, nodes, &assigned{}, cluster.Config{EnableIPsec: true}, nil, slog.New(slog.DiscardHandler)).(*podSource)
	var v podStores
	if v.pods, err = pods.Store(t.Context()); err != nil {
		t.Fatal(err)
	}
	if v.nodes, err = nodes.Store(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.stores.Store(&v)
	for rest, want := range map[string]bool{
		`"spec":{"encryption":{"key":3}}`:                       false,
		`"spec":{"encryption":{"key":"3"}}`:                     true,
		`"spec":7`:                                              true,
		`"spec":{"encryption":{"key":3},"ipam":{"podCIDRs":7}}`: false,
	} {
		nodes.Upsert(node(rest))
		if got := f.undecodable(slim.Key{Namespace: "shop", Name: "web"}); got != want {
			t.Errorf("%s: it cannot be decoded: %t", rest, got)
		}
		for _, other := range []string{"bare", "gone"} {
			if f.undecodable(slim.Key{Namespace: "shop", Name: other}) {
				t.Errorf("%s: of %s there is nothing to be said", rest, other)
			}
		}
	}
}

// CES-31; numbers 27 and 28 of the contract's endpoint-slices.md: the number of the key by how agents encrypt.
func TestEncryptionKey(t *testing.T) {
	n := &ciliumio.Node{}
	n.Spec.Encryption.Key = 3
	for name, test := range map[string]struct {
		encryption
		want int
	}{
		"WireGuard":           {encryption{wireGuard: true}, 255},
		"IPsec":               {encryption{ipsec: true}, 3},
		"WireGuard and IPsec": {encryption{wireGuard: true, ipsec: true}, 255},
		"neither":             {encryption{}, 0},
	} {
		if key := test.key(n); key != test.want {
			t.Errorf("%s: %d", name, key)
		}
	}
}
