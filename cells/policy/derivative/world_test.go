// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package derivative

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/networkpolicy"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/cell"
)

// cloud is a provider of groups. Each group is a label; its value names the group.
type cloud struct {
	mu      sync.Mutex
	members map[string][]string
	fails   map[string]string
	beyond  map[string]bool // groups with too many addresses
	asked   map[string]int
	waiting atomic.Int32
	slow    chan struct{} // look-ups of groups named slow wait for its end
}

func newCloud() *cloud {
	return &cloud{members: map[string][]string{}, fails: map[string]string{}, beyond: map[string]bool{}, asked: map[string]int{}, slow: make(chan struct{})}
}

// Name implements networkpolicy.Provider.
func (*cloud) Name() string { return "aws" }

// Addresses implements networkpolicy.Provider.
func (c *cloud) Addresses(ctx context.Context, raw json.RawMessage) (all []netip.Addr, err error) {
	var g v2.AWSGroup
	if err := json.Unmarshal(raw, &g); err != nil {
		return nil, err
	}
	name := g.Labels["group"]
	if strings.HasPrefix(name, "slow") {
		c.waiting.Add(1)
		select {
		case <-c.slow:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked[name]++
	if text := c.fails[name]; text != "" {
		return nil, errors.New(text)
	}
	if c.beyond[name] {
		return nil, fmt.Errorf("reading it: %w", networkpolicy.ErrTooManyAddresses)
	}
	for _, m := range c.members[name] {
		all = append(all, netip.MustParseAddr(m))
	}
	return all, nil
}

// begun is the number of slow look-ups that have begun.
func (c *cloud) begun() int { return int(c.waiting.Load()) }

func (c *cloud) set(group string, members ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.members[group] = members
}

// fail has look-ups of a group fail, "" has them work.
func (c *cloud) fail(group, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fails[group] = text
}

func (c *cloud) lookups(group string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked[group]
}

// world is all network policies of the cluster, and a cloud.
type world struct {
	*operatortest.Env
	cloud                 *cloud
	policies, clusterwide dynamic.ResourceInterface
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Env: operatortest.NewEnv(t, clustertest.Shared(t), "CiliumNetworkPolicy", "CiliumClusterwideNetworkPolicy", "CiliumCIDRGroup"), cloud: newCloud()}
	w.Clear(v2.CiliumNetworkPolicyResource, v2.CiliumClusterwideNetworkPolicyResource, v2.CiliumCIDRGroupResource)
	w.CreateNamespace()
	w.policies = w.Dynamic.Resource(v2.CiliumNetworkPolicyResource).Namespace(w.Namespace)
	w.clusterwide = w.Dynamic.Resource(v2.CiliumClusterwideNetworkPolicyResource)
	return w
}

// start runs an operator with the cloud's cell beside the duty, in a cluster of agents that need derived policies.
func (w *world) start(kubeconfig string, args ...string) *operatortest.Operator {
	return w.startIn(kubeconfig, append(args, "--cilium-release=1.19")...)
}

// startIn is start in a cluster of agents as the options and pods say. What takes a minute takes a second.
func (w *world) startIn(kubeconfig string, args ...string) *operatortest.Operator {
	provider := cell.Module("cloud", "Looks up the groups of a cloud", cell.Provide(func() networkpolicy.ProviderOut {
		return networkpolicy.ProviderOut{Provider: w.cloud}
	}))
	return operatortest.Start(w.T, cell.Set(module(quick), provider), kubeconfig, append(args, "--cilium-pod-namespace="+w.Namespace)...)
}

var quick = timing{leftovers: time.Second, overlap: time.Second, recheck: 200 * time.Millisecond}

// groupRule is a rule for members of groups and a port.
func groupRule(groups ...string) string {
	var all []string
	for _, g := range groups {
		all = append(all, fmt.Sprintf(`{"aws":{"labels":{"group":%q}}}`, g))
	}
	return fmt.Sprintf(`{"endpointSelector":{"matchLabels":{"app":"web"}},"egress":[{"toGroups":[%s],"toPorts":[{"ports":[{"port":"5555","protocol":"TCP"}]}]}]}`, strings.Join(all, ","))
}

// create creates a policy, and returns the name of the one that is derived from it.
func (w *world) create(in dynamic.ResourceInterface, name, rules string) (derived string) {
	w.T.Helper()
	kind := "CiliumNetworkPolicy"
	if in == w.clusterwide {
		kind = "CiliumClusterwideNetworkPolicy"
	}
	u := &unstructured.Unstructured{}
	text := fmt.Sprintf(`{"apiVersion":"cilium.io/v2","kind":%q,"metadata":{"name":%q},%s}`, kind, name, rules)
	if err := u.UnmarshalJSON([]byte(text)); err != nil {
		w.T.Fatal(text, err)
	}
	u, err := in.Create(w.T.Context(), u, metav1.CreateOptions{})
	if err != nil {
		w.T.Fatal(err)
	}
	return nameOf(name, string(u.GetUID()))
}

func (w *world) patch(in dynamic.ResourceInterface, name, patch string, subresources ...string) {
	w.T.Helper()
	if _, err := in.Patch(w.T.Context(), name, "application/merge-patch+json", []byte(patch), metav1.PatchOptions{}, subresources...); err != nil {
		w.T.Fatal(err)
	}
}

// get is a policy, nil if there is none.
func (w *world) get(in dynamic.ResourceInterface, name string) *unstructured.Unstructured {
	w.T.Helper()
	u, err := in.Get(w.T.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.T.Fatal(err)
	}
	return u
}

// egress is the first entry of egress of a derived policy, as JSON, "" if there is no policy.
func (w *world) egress(in dynamic.ResourceInterface, name string) string {
	w.T.Helper()
	u := w.get(in, name)
	if u == nil {
		return ""
	}
	specs, _, _ := unstructured.NestedSlice(u.Object, "specs")
	if len(specs) == 0 {
		return ""
	}
	entries, _ := specs[0].(map[string]any)["egress"].([]any)
	text, _ := json.Marshal(entries[0])
	return string(text)
}

// cidrs waits for the list of CIDRs of a derived policy.
func (w *world) cidrs(in dynamic.ResourceInterface, name string, want ...string) {
	w.T.Helper()
	list := []string{}
	for _, c := range want {
		list = append(list, fmt.Sprintf(`{"cidr":%q}`, c))
	}
	entry := fmt.Sprintf(`{"toCIDRSet":[%s],"toPorts":[{"ports":[{"port":"5555","protocol":"TCP"}]}]}`, strings.Join(list, ","))
	operatortest.Eventually(w.T, name+" has "+entry, func() bool { return w.egress(in, name) == entry })
}

// entries are those of the status of a policy: the name and what it says.
func (w *world) entries(in dynamic.ResourceInterface, name string) string {
	w.T.Helper()
	all, _, _ := unstructured.NestedMap(w.get(in, name).Object, "status", "derivativePolicies")
	var texts []string
	for name, e := range all {
		entry := e.(map[string]any)
		texts = append(texts, fmt.Sprint(name, ": ", entry["ok"], " ", entry["error"]))
	}
	return strings.Join(texts, ", ")
}

func (w *world) status(in dynamic.ResourceInterface, name, want string) {
	w.T.Helper()
	got := ""
	defer func() {
		if w.T.Failed() {
			w.T.Logf("the status of %s is %q", name, got)
		}
	}()
	operatortest.Eventually(w.T, fmt.Sprintf("the status of %s is %q", name, want), func() bool {
		got = w.entries(in, name)
		return got == want
	})
}

const isOK = ": true <nil>"

// writes are the mutating requests after the one with a number, and the number of the last request.
func (w *world) writes(after int64) (texts []string, last int64) {
	w.T.Helper()
	last = after
	for _, r := range w.Proxy.Requests(w.T, after) {
		last = r.Seq
		if strings.HasPrefix(r.Resource, "cilium") && r.Verb != "get" && r.Verb != "list" && r.Verb != "watch" {
			texts = append(texts, strings.TrimSuffix(fmt.Sprintf("%s %s/%s", r.Verb, r.Resource, r.Subresource), "/"))
		}
	}
	return texts, last
}
