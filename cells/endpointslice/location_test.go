// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslice

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/api/v2alpha1"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
)

func nodeAt(name string, addresses ...v2.NodeAddress) *ciliumio.Node {
	n := &ciliumio.Node{}
	n.Name, n.Spec.Addresses = name, ciliumio.MakeNodeAddresses(addresses...)
	return n
}

func internal(ip string) v2.NodeAddress {
	return v2.NodeAddress{Type: v2.NodeAddressInternalIP, IP: ip}
}

// located is a source of pods of which each has an identity, beside the nodes n1 and n2.
type located struct {
	*podSource
	pods  *stream.Local[slim.Pod]
	nodes *stream.Local[ciliumio.Node]
}

func locate(t *testing.T, nodes ...*ciliumio.Node) located {
	t.Helper()
	pods, err := stream.NewLocal[slim.Pod]()
	if err != nil {
		t.Fatal(err)
	}
	all, err := stream.NewLocal[ciliumio.Node]()
	if err != nil {
		t.Fatal(err)
	}
	pods.Replace()
	all.Replace(nodes...)
	a := &assigned{numbers: map[types.NamespacedName]identity.Number{{Namespace: "shop", Name: "web"}: 300}, complete: make(chan struct{})}
	close(a.complete)
	s := newPodSource(pods, all, a, cluster.Config{}, nil, slog.New(slog.DiscardHandler)).(*podSource)
	var v podStores
	if v.pods, err = pods.Store(t.Context()); err != nil {
		t.Fatal(err)
	}
	if v.nodes, err = all.Store(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.stores.Store(&v)
	return located{s, pods, all}
}

// entry is that of the pod web with a status: its addresses, and its node.
func (l located) entry(host string, ips ...string) (text, refused string) {
	p := pod("web", "", func(p *slim.Pod) { p.Status.HostIP = slim.ParseAddr(host) })
	for _, ip := range ips {
		p.Status.PodIPs = append(p.Status.PodIPs, slim.PodIP{IP: slim.ParseAddr(ip)})
	}
	l.pods.Upsert(p)
	refused = l.stores.Load().refused(p)
	e, ok := l.content(slim.Key{Namespace: "shop", Name: "web"}, 0)
	if !ok {
		return "", refused
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s", e.Networking.Addressing[0].IPv4, e.Networking.Addressing[0].IPv6)) + " at " + e.Networking.NodeIP, refused
}

var twoNodes = []*ciliumio.Node{
	nodeAt("n1", internal("192.168.0.2"), v2.NodeAddress{Type: v2.NodeAddressCiliumInternalIP, IP: "10.0.1.1"}, v2.NodeAddress{Type: v2.NodeAddressExternalIP, IP: "198.51.100.2"}),
	nodeAt("n2", v2.NodeAddress{Type: v2.NodeAddressHostName, IP: "n2"}, internal("192.168.0.3"), internal("10.0.2.77"), internal("fd00::3"), v2.NodeAddress{Type: v2.NodeAddressCiliumInternalIP, IP: "10.0.2.1"}, v2.NodeAddress{Type: v2.NodeAddressCiliumInternalIP, IP: "10.0.2.2"}),
	nodeAt("n3", v2.NodeAddress{Type: v2.NodeAddressExternalIP, IP: "198.51.100.3"}, v2.NodeAddress{Type: v2.NodeAddressExternalIP, IP: "198.51.100.4"}),
}

// CES-35: what no pod can have, and what a node has, is left out of the entry of a pod whose status shows it.
func TestAddressesThatNoPodHas(t *testing.T) {
	l := locate(t, twoNodes...)
	const refusedAll = ""
	for ips, want := range map[string]string{
		"10.0.1.5":                    "10.0.1.5",
		"10.0.1.5 fd00:1::5":          "10.0.1.5 fd00:1::5",
		"fd00:1::5 10.0.1.5":          "10.0.1.5 fd00:1::5",
		"10.0.1.5 10.0.1.6":           "10.0.1.5",
		"127.0.0.1 10.0.1.6":          "10.0.1.6",
		"240.0.0.7":                   "240.0.0.7", // some clouds
		"10.0.2.77":                   "10.0.2.77", // some clouds list addresses of pods behind the first of a node
		"198.51.100.2":                "198.51.100.2",
		"198.51.100.3":                refusedAll,
		"198.51.100.4":                "198.51.100.4",
		"10.0.2.1":                    "10.0.2.1", // that of an agent, where another CNI gives addresses
		"0.0.0.0":                     refusedAll,
		"127.0.0.1":                   refusedAll,
		"127.8.0.1 ::1":               refusedAll,
		"169.254.169.254":             refusedAll,
		"224.0.0.1":                   refusedAll,
		"255.255.255.255":             refusedAll,
		"::":                          refusedAll,
		"fe80::1":                     refusedAll,
		"fe80::1%eth0":                refusedAll,
		"fd00::1%eth0":                refusedAll,
		"ff02::1":                     refusedAll,
		"::ffff:10.0.1.5":             refusedAll,
		"web.example":                 refusedAll,
		"192.168.0.2":                 refusedAll,
		"192.168.0.3 fd00::3":         refusedAll,
		"192.168.0.3 fd00:1::5":       "fd00:1::5",
		"0.0.0.0 127.0.0.1 x :: 1::1": "1::1",
	} {
		if want != "" {
			want += " at 192.168.0.2"
		}
		got, refused := l.entry("192.168.0.2", strings.Fields(ips)...)
		if got != want {
			t.Errorf("%s: the entry has %q, want %q", ips, got, want)
		}
		if strings.Contains(ips, " ") {
			continue
		}
		if (refused != "") != (want == "") {
			t.Errorf("%s: it is reported that %q", ips, refused)
		}
	}
	for ips, want := range map[string]string{
		"10.0.1.5 fd00:1::5":       "",
		"127.0.0.1":                "127.0.0.1, which no pod can have",
		"192.168.0.3 fd00::3":      "192.168.0.3, which is that of node n2; fd00::3, which is that of node n2",
		"x":                        "a text that is no address",
		"0.0.0.0 :: ::1 x ff02::1": "0.0.0.0, which no pod can have; ::, which no pod can have; ::1, which no pod can have; and 2 more",
	} {
		if _, got := l.entry("192.168.0.2", strings.Fields(ips)...); got != want {
			t.Errorf("%s: it is reported that %q, want %q", ips, got, want)
		}
	}
}

// CES-35: over any status of a pod its entry has addresses of global unicast alone, at most one of each family, and a node's own nowhere.
func TestNoEntryHasAnAddressThatNoPodHas(t *testing.T) {
	l := locate(t, twoNodes...)
	r := rand.New(rand.NewPCG(1, 2))
	of := []string{"10.0.1.5", "192.168.0.2", "192.168.0.3", "10.0.2.1", "127.0.0.1", "169.254.169.254", "fe80::1", "fd00:1::5", "fd00::3", "::ffff:192.168.0.3", "0.0.0.0", "::", "224.0.0.1", "x", "203.0.113.9"}
	some := func() string { return of[r.IntN(len(of))] }
	for range 5000 {
		ips := make([]string, r.IntN(5))
		for i := range ips {
			ips[i] = some()
		}
		host := some()
		got, _ := l.entry(host, ips...)
		if got == "" {
			continue
		}
		addresses, node, _ := strings.Cut(got, " at ")
		for _, text := range strings.Fields(addresses) {
			if a := slim.ParseAddr(text); !isPodAddress(a) || strings.Contains("192.168.0.2 192.168.0.3 fd00::3", text) {
				t.Fatalf("%s %v: the entry has %s", host, ips, got)
			}
		}
		if known := slim.ParseAddr(host).IsValid(); known != (node == "192.168.0.2") || !known && node != "" {
			t.Fatalf("%s %v: the entry has %s", host, ips, got)
		}
	}
}

// CES-36: the node of an entry is the one that the pod is on, whatever its status shows.
func TestNodeOfAPod(t *testing.T) {
	dual := nodeAt("n1", v2.NodeAddress{Type: v2.NodeAddressExternalIP, IP: "198.51.100.2"}, internal("192.168.0.2"), internal("192.168.0.4"), internal("fd00::2"),
		v2.NodeAddress{Type: v2.NodeAddressCiliumInternalIP, IP: "10.0.1.1"})
	for name, test := range map[string]struct {
		node             *ciliumio.Node
		shown, want      string
		isOut, isRefused bool
	}{
		"its own":                     {node: dual, shown: "192.168.0.2", want: "192.168.0.2"},
		"its second":                  {node: dual, shown: "192.168.0.4", want: "192.168.0.4"},
		"its own of the other family": {node: dual, shown: "fd00::2", want: "fd00::2"},
		"its external one":            {node: dual, shown: "198.51.100.2", want: "198.51.100.2"},
		"another node's":              {node: dual, shown: "192.168.0.3", want: "192.168.0.2", isRefused: true},
		"another node's of IPv6":      {node: dual, shown: "fd00::3", want: "fd00::2", isRefused: true},
		"outside":                     {node: dual, shown: "203.0.113.9", want: "192.168.0.2", isRefused: true},
		"loopback":                    {node: dual, shown: "127.0.0.1", want: "192.168.0.2", isRefused: true},
		"that of its agent":           {node: dual, shown: "10.0.1.1", want: "192.168.0.2", isRefused: true},
		"IPv4 in IPv6":                {node: dual, shown: "::ffff:192.168.0.2", want: "fd00::2", isRefused: true},
		"no address":                  {node: dual, shown: "n1", want: ""},
		"IPv4 alone":                  {node: twoNodes[0], shown: "fd00::3", want: "192.168.0.2", isRefused: true},
		"an external one alone":       {node: nodeAt("n1", v2.NodeAddress{Type: v2.NodeAddressExternalIP, IP: "198.51.100.2"}), shown: "203.0.113.9", want: "198.51.100.2", isRefused: true},
		"of a node that lists none":   {node: nodeAt("n1"), shown: "192.168.0.9", want: "192.168.0.9"},
		"another's, which lists none": {node: nodeAt("n1"), shown: "192.168.0.3", isOut: true, isRefused: true},
		"loopback, and it lists none": {node: nodeAt("n1"), shown: "127.0.0.1", isOut: true, isRefused: true},
	} {
		l := locate(t, test.node, twoNodes[1])
		got, refused := l.entry(test.shown, "10.0.1.5")
		want := "10.0.1.5 at " + test.want
		if test.isOut {
			want = ""
		}
		if got != want || (refused != "") != test.isRefused {
			t.Errorf("%s: the entry has %q, want %q; it is reported that %q", name, got, want, refused)
		}
	}
}

// CES-36: while it is not known which addresses the node has, entries stay as they are.
func TestPodsOfNodesThatAreNotKnown(t *testing.T) {
	l := locate(t, twoNodes...)
	web := slim.Key{Namespace: "shop", Name: "web"}
	waits := func(want bool, when string) {
		t.Helper()
		if got := l.undecodable(web); got != want {
			t.Errorf("%s: its entry stays as it is: %t", when, got)
		}
	}
	l.entry("192.168.0.2", "10.0.1.5")
	waits(false, "the node is known")
	l.nodes.Delete(slim.Key{Name: "n1"})
	waits(true, "the node is not known")
	if got, refused := l.entry("203.0.113.9", "10.0.1.5"); got != "" || refused != "" {
		t.Errorf("the entry has %s; it is reported that %q", got, refused)
	}
	l.entry("192.168.0.2")
	waits(false, "the pod has no address any more")
	codec, err := slim.JSON[ciliumio.Node]()
	if err != nil {
		t.Fatal(err)
	}
	l.entry("192.168.0.2", "10.0.1.5")
	for text, want := range map[string]bool{`"x"`: true, `[{"type":"InternalIP","ip":7}]`: true, `[{"type":"InternalIP","ip":"x"}]`: false, `null`: false} {
		n := &ciliumio.Node{}
		if err := codec.DecodeJSON([]byte(`{"metadata":{"name":"n1"},"spec":{"addresses":`+text+`}}`), n); err != nil {
			t.Fatal(err)
		}
		l.nodes.Upsert(n)
		waits(want, text)
	}
}

// CES-35, CES-36: what nodes get and lose counts at once, and it is reported once for each change.
func TestNodesChangeWhatPodsMayShow(t *testing.T) {
	l := locate(t, nodeAt("n1", internal("192.168.0.2")))
	ctx, cancel := context.WithCancel(t.Context())
	web := slim.Key{Namespace: "shop", Name: "web"}
	var mu sync.Mutex
	last, ended := "", make(chan struct{})
	go func() {
		defer close(ended)
		_ = l.watch(ctx, func(key slim.Key, _ k8s.Trigger) {
			mu.Lock()
			defer mu.Unlock()
			if e, ok := l.content(key, 0); !ok {
				last = "none"
			} else {
				last = e.Networking.Addressing[0].IPv4 + " at " + e.Networking.NodeIP
			}
		}, func() {})
	}()
	defer func() { cancel(); <-ended }()
	is := func(want string, lines int) {
		t.Helper()
		operatortest.Eventually(t, "the entry is "+want, func() bool {
			mu.Lock()
			defer mu.Unlock()
			l.refusals.mu.Lock()
			defer l.refusals.mu.Unlock()
			return last == want && l.refusals.known[web].lines == lines
		})
	}
	l.entry("192.168.0.2", "192.168.0.7")
	is("192.168.0.7 at 192.168.0.2", 0)
	l.nodes.Upsert(nodeAt("n2", internal("192.168.0.7")))
	is("none", 1)
	l.nodes.Upsert(nodeAt("n3", internal("192.168.0.8")))
	l.nodes.Upsert(nodeAt("n2", internal("192.168.0.9")))
	is("192.168.0.7 at 192.168.0.2", 1)
	l.nodes.Upsert(nodeAt("n1", internal("192.168.0.12")))
	is("192.168.0.7 at 192.168.0.12", 2)
	l.pods.Delete(web)
	is("none", 0)
}

// CES-35: a pod whose status changes all the time has a few lines in the log.
func TestRefusalsAreFew(t *testing.T) {
	var log strings.Builder
	r := newRefusals(nil, slog.New(slog.NewTextHandler(&log, nil)))
	p := pod("web", "10.0.1.5")
	for i := range 100 {
		r.set(p, fmt.Sprint("this ", i))
		r.set(p, fmt.Sprint("this ", i))
		r.set(p, "")
	}
	if n := strings.Count(log.String(), "\n"); n != mostLines {
		t.Errorf("there are %d lines:\n%s", n, log.String())
	}
	r.forget(p.Key())
	if len(r.known) != 0 {
		t.Error("it is remembered after it is gone")
	}
}

// CES-36: what goes while an entry is made of it does not take the endpoint out of its slice.
func TestNodeGoesWhileItsEntryIsMade(t *testing.T) {
	web := slim.Key{Namespace: "shop", Name: "web"}
	entry := v2alpha1.CoreCiliumEndpoint{Name: "web", IdentityID: 300}
	known, goes := true, false
	content := func(slim.Key, int64) (v2alpha1.CoreCiliumEndpoint, bool) {
		known = known && !goes
		return entry, known
	}
	p := newPlanner(100, false, func() string { return "ces-new" })
	p.undecodable = func(slim.Key) bool { return !known }
	p.observe("ces-a", stored{uid: slim.ParseUID("uid-a"), revision: 7, namespace: "shop", endpoints: []ciliumio.SliceEndpoint{ciliumio.SliceEndpointOf(&entry)}})
	p.upsert(web, ciliumio.SliceEndpointOf(&entry), 100)
	p.bootstrap(content)
	p.confirm()
	if op := p.nextOp("ces-a", content); op.kind != opNone {
		t.Fatalf("at first there is a write of kind %d", op.kind)
	}
	goes = true
	if op := p.nextOp("ces-a", content); op.kind != opNone || known {
		t.Errorf("there is a write of kind %d", op.kind)
	}
}
