// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package load

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/types"
)

// Options are what is loaded.
type Options struct {
	Size Size
	// Seed of everything that looks random.
	Seed uint64
	// Converged makes what an operator would: each CiliumNode has its pod CIDR,
	// and there is a CiliumIdentity for each label set.
	Converged bool
	// Identities makes the CiliumIdentities alone.
	Identities bool
	// Without are the names of phases that are left out, such as "ciliumendpoints".
	Without []string
}

// epoch is when the cluster was made, according to its objects.
var epoch = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// plan is who there is; objects are made from it one at a time.
type plan struct {
	Options
	namespaces []namespace
	workloads  []workload // Deployments, then DaemonSets
	nodes      []int      // a permutation: where pods go, in order
	deployed   int        // pods of Deployments
}

type namespace struct {
	name string
	team string
}

// workload is a Deployment or a DaemonSet: a set of pods with the same labels.
type workload struct {
	daemonSet       bool
	namespace, name string
	labels          map[string]string
	hash            string // of the pod template
	variant         int    // of the pod template
	identity        int64
	replicas        int
	service         bool
	drawn           uint64 // where its pods' names begin
	// first says where its pods go: of a Deployment, how many pods of
	// Deployments come before; of a DaemonSet, how many DaemonSets.
	first int
	// index is its place among workloads, pods how many pods come before.
	index, pods int
}

// minIdentity and maxIdentities bound the identities of a cluster.
const (
	minIdentity   = 256
	maxIdentities = 65535 - minIdentity
)

func newPlan(opts Options) (*plan, error) {
	if err := opts.Size.validate(); err != nil {
		return nil, err
	}
	p := &plan{Options: opts}
	if err := p.checkWithout(); err != nil {
		return nil, err
	}
	random := p.random("plan")
	p.nodes = random.Perm(opts.Size.Nodes)
	p.planNamespaces()
	p.planWorkloads(random)
	return p, nil
}

// random is a source of its own for each thing, so that nothing depends on the
// order in which things are made.
func (p *plan) random(thing string) *rand.Rand {
	sum := sha256.Sum256([]byte(thing))
	return rand.New(rand.NewPCG(p.Seed, binary.BigEndian.Uint64(sum[:])))
}

// uid is the identifier of an object that is written into etcd.
func (p *plan) uid(kind, namespace, name string) types.UID {
	key := fmt.Sprintf("%d/%s/%s/%s", p.Seed, kind, namespace, name)
	return types.UID(uuid.NewSHA1(uuid.NameSpaceURL, []byte(key)).String())
}

var (
	teams  = []string{"payments", "search", "checkout", "catalog", "identity", "shipping", "pricing", "media", "growth", "support", "fraud", "ledger"}
	stages = []string{"prod", "staging", "canary", "dev"}
	roles  = []string{"api", "worker", "web", "cron", "gateway", "cache", "indexer", "proxy", "stream", "admin"}
	tiers  = []string{"frontend", "backend", "data"}
)

func (p *plan) planNamespaces() {
	for i := range p.Size.namespaces() {
		team := teams[i%len(teams)]
		name := team + "-" + stages[i/len(teams)%len(stages)]
		if round := i / (len(teams) * len(stages)); round > 0 {
			name += "-" + strconv.Itoa(round+1)
		}
		p.namespaces = append(p.namespaces, namespace{name, team})
	}
}

func (p *plan) planWorkloads(random *rand.Rand) {
	daemonSets := p.Size.daemonSets()
	deployments := p.Size.workloads() - daemonSets
	p.deployed = p.Size.Pods - daemonSets*p.Size.Nodes
	identities := random.Perm(maxIdentities)
	first := 0
	for i, replicas := range shareOut(p.deployed, deployments) {
		ns := p.namespaces[random.IntN(len(p.namespaces))]
		role := roles[random.IntN(len(roles))]
		name := fmt.Sprintf("%s-%s-%d", ns.team, role, i+1)
		p.workloads = append(p.workloads, workload{
			namespace: ns.name, name: name, hash: hash(random, 10), variant: i % podVariants,
			labels: map[string]string{
				"app":                         name,
				"app.kubernetes.io/name":      ns.team + "-" + role,
				"app.kubernetes.io/instance":  name,
				"app.kubernetes.io/component": role,
				"team":                        ns.team,
				"tier":                        tiers[i%len(tiers)],
				"version":                     fmt.Sprintf("v%d.%d.%d", 1+i%3, random.IntN(30), random.IntN(10)),
			},
			replicas: replicas, first: first, service: i%3 == 0,
		})
		first += replicas
	}
	for i, name := range daemonSetNames[:daemonSets] {
		p.workloads = append(p.workloads, workload{
			daemonSet: true, namespace: "kube-system", name: name, hash: hash(random, 10), variant: i % podVariants,
			labels: map[string]string{
				"app":                    name,
				"app.kubernetes.io/name": name,
				"k8s-app":                name,
			},
			replicas: p.Size.Nodes, first: i,
		})
	}
	pods := 0
	for i := range p.workloads {
		p.workloads[i].index, p.workloads[i].pods = i, pods
		pods += p.workloads[i].replicas
		p.workloads[i].drawn = random.Uint64() >> 1
		p.workloads[i].identity = minIdentity + int64(identities[i])
	}
}

// shareOut divides pods among deployments the way clusters are: a few are large,
// most are small, all have one.
func shareOut(pods, deployments int) []int {
	weights := make([]float64, deployments)
	total := 0.0
	for i := range weights {
		weights[i] = 1 / math.Pow(float64(i+5), 0.8)
		total += weights[i]
	}
	sizes := make([]int, deployments)
	rest := pods
	for i := range sizes {
		sizes[i] = 1 + int(float64(pods-deployments)*weights[i]/total)
		rest -= sizes[i]
	}
	for i := range rest {
		sizes[i%deployments]++
	}
	slices.Reverse(sizes) // the large ones are not the first
	return sizes
}

const hashLetters = "bcdfghjklmnpqrstvwxz2456789"

func hash(random *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = hashLetters[random.IntN(len(hashLetters))]
	}
	return string(b)
}

// place is where a workload's pod runs and the host number of its address there.
func (p *plan) place(w *workload, replica int) (node int, host int) {
	if w.daemonSet {
		return replica, firstHost + w.first
	}
	nth := w.first + replica
	return p.nodes[nth%len(p.nodes)], firstHost + len(daemonSetNames) + nth/len(p.nodes)
}

func nodeName(i int) string { return fmt.Sprintf("node-%05d", i+1) }

// podCIDR is the network of a node's pods.
func podCIDR(node int) netip.Prefix {
	return netip.PrefixFrom(podIP(node, 0), 24)
}

func podIP(node, host int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(node >> 8), byte(node), byte(host)})
}

func nodeIP(node int) netip.Addr {
	n := node + 1
	return netip.AddrFrom4([4]byte{192, 168, byte(n >> 8), byte(n)})
}

// clusterIP is the address of a workload's service, behind those that are
// reserved for well-known services.
func clusterIP(w *workload) netip.Addr {
	n := w.index + 256
	return netip.AddrFrom4([4]byte{172, 20, byte(n >> 8), byte(n)})
}

// podName ends in letters that look drawn and that no other pod of the workload
// has: the replica's number, permuted.
func (p *plan) podName(w *workload, replica int) string {
	const (
		letters = uint64(len(hashLetters))
		names   = letters * letters * letters * letters * letters
		step    = 7_654_321 // coprime to names
	)
	n := (uint64(replica)*step + w.drawn) % names
	var suffix [5]byte
	for i := range suffix {
		suffix[i] = hashLetters[n%letters]
		n /= letters
	}
	if w.daemonSet {
		return w.name + "-" + string(suffix[:])
	}
	return w.name + "-" + w.hash + "-" + string(suffix[:])
}
