// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package load

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/resources/api"
	ciliumv2 "github.com/skep-operator/skep/resources/api/v2"
)

// object is any Kubernetes object.
type object interface {
	runtime.Object
	metav1.Object
}

// kind says how objects of a kind come about.
type kind struct {
	gvk      schema.GroupVersionKind
	resource string // plural
	// creator is who creates such objects; reporter, if there is a status
	// subresource, who writes their status.
	creator, reporter string
	// custom says that a CustomResourceDefinition defines the kind.
	custom bool
}

func (k *kind) gvr() schema.GroupVersionResource {
	return k.gvk.GroupVersion().WithResource(k.resource)
}

const (
	byHelm       = "helm"
	byController = "kube-controller-manager"
	byKubelet    = "kubelet"
	byAgent      = "cilium-agent"
)

// byServer is how an API server inside this program calls itself.
var byServer = filepath.Base(os.Args[0])

var (
	namespaceKind      = &kind{gvk: corev1.SchemeGroupVersion.WithKind("Namespace"), resource: "namespaces", creator: byHelm}
	nodeKind           = &kind{gvk: corev1.SchemeGroupVersion.WithKind("Node"), resource: "nodes", creator: byKubelet, reporter: byKubelet}
	podKind            = &kind{gvk: corev1.SchemeGroupVersion.WithKind("Pod"), resource: "pods", creator: byController, reporter: byKubelet}
	serviceKind        = &kind{gvk: corev1.SchemeGroupVersion.WithKind("Service"), resource: "services", creator: byHelm}
	deploymentKind     = &kind{gvk: appsv1.SchemeGroupVersion.WithKind("Deployment"), resource: "deployments", creator: byHelm, reporter: byController}
	replicaSetKind     = &kind{gvk: appsv1.SchemeGroupVersion.WithKind("ReplicaSet"), resource: "replicasets", creator: byController, reporter: byController}
	daemonSetKind      = &kind{gvk: appsv1.SchemeGroupVersion.WithKind("DaemonSet"), resource: "daemonsets", creator: byHelm, reporter: byController}
	endpointSliceKind  = &kind{gvk: discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"), resource: "endpointslices", creator: byController}
	ipAddressKind      = &kind{gvk: networkingv1.SchemeGroupVersion.WithKind("IPAddress"), resource: "ipaddresses", creator: byServer}
	ciliumNodeKind     = &kind{gvk: ciliumv2.SchemeGroupVersion.WithKind("CiliumNode"), resource: "ciliumnodes", creator: byAgent, custom: true}
	ciliumEndpointKind = &kind{gvk: ciliumv2.SchemeGroupVersion.WithKind("CiliumEndpoint"), resource: "ciliumendpoints", creator: byAgent, custom: true}
	ciliumIdentityKind = &kind{gvk: ciliumv2.SchemeGroupVersion.WithKind("CiliumIdentity"), resource: "ciliumidentities", creator: byAgent, custom: true}
)

// customKinds are those whose definitions a load needs.
var customKinds = []*kind{ciliumNodeKind, ciliumEndpointKind, ciliumIdentityKind}

// newScheme knows the types of everything that is loaded.
func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	builder := runtime.NewSchemeBuilder(corev1.AddToScheme, appsv1.AddToScheme, discoveryv1.AddToScheme, networkingv1.AddToScheme, api.AddToScheme)
	return scheme, builder.AddToScheme(scheme)
}

// item is an object on its way into the cluster.
type item struct {
	*kind
	object object
	// shape names the set of fields that the object has, but for what is named
	// by fillers: the keys of lists, which are part of the set.
	shape   string
	fillers []string
}

func (it item) String() string {
	if it.object.GetNamespace() == "" {
		return it.gvk.Kind + " " + it.object.GetName()
	}
	return it.gvk.Kind + " " + it.object.GetNamespace() + "/" + it.object.GetName()
}

// phase is what may be written, in any order, once everything before it is
// there.
type phase struct {
	name  string
	count int
	item  func(i int) item
}

// phases is all that is loaded, owners before what they own. The API server
// keeps IPAddresses itself; they are asked for only when there is none.
func (p *plan) phases(ipAddresses bool) []phase {
	deployments, daemonSets := p.byKind()
	services := slices.DeleteFunc(slices.Clone(deployments), func(w *workload) bool { return !w.service })

	all := []phase{
		phaseOf("namespaces", p.namespaces, p.namespace),
		{"nodes", p.Size.Nodes, p.node},
		{"ciliumnodes", p.Size.Nodes, p.ciliumNode},
		phaseOf("deployments", deployments, p.deployment),
		phaseOf("daemonsets", daemonSets, p.daemonSet),
		phaseOf("replicasets", deployments, p.replicaSet),
		p.podPhase("pods", p.pod),
	}
	if ipAddresses {
		all = append(all, phaseOf("ipaddresses", services, p.ipAddress))
	}
	all = append(all,
		phaseOf("services", services, p.service),
		phaseOf("endpointslices", p.slices(services), p.endpointSlice),
	)
	if p.Converged || p.Identities {
		all = append(all, phaseOf("ciliumidentities", slices.Concat(deployments, daemonSets), p.ciliumIdentity))
	}
	all = append(all, p.podPhase("ciliumendpoints", p.ciliumEndpoint))
	return slices.DeleteFunc(all, func(ph phase) bool { return slices.Contains(p.Without, ph.name) })
}

// checkWithout finds names that are left out in vain.
func (p *plan) checkWithout() error {
	all := &plan{Options: Options{Size: p.Size, Converged: true}}
	var names []string
	for _, ph := range all.phases(true) {
		names = append(names, ph.name)
	}
	for _, name := range p.Without {
		if !slices.Contains(names, name) {
			return fmt.Errorf("leave out %s: a load consists of %s", name, strings.Join(names, ", "))
		}
	}
	return nil
}

func phaseOf[T any](name string, things []T, make func(T) item) phase {
	return phase{name, len(things), func(i int) item { return make(things[i]) }}
}

// podPhase makes something for each pod.
func (p *plan) podPhase(name string, make func(w *workload, replica int) item) phase {
	return phase{name, p.Size.Pods, func(i int) item {
		next := sort.Search(len(p.workloads), func(w int) bool { return p.workloads[w].pods > i })
		w := &p.workloads[next-1]
		return make(w, i-w.pods)
	}}
}

// byKind returns the Deployments and the DaemonSets.
func (p *plan) byKind() (deployments, daemonSets []*workload) {
	for i := range p.workloads {
		w := &p.workloads[i]
		if w.daemonSet {
			daemonSets = append(daemonSets, w)
		} else {
			deployments = append(deployments, w)
		}
	}
	return deployments, daemonSets
}
