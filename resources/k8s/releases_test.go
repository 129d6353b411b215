// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"context"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/skep-operator/skep/resources/api"
	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/api/v2alpha1"
	"github.com/skep-operator/skep/resources/referencetest"
)

// written is what duties write of a kind, with each field that they may set.
type written struct {
	resource schema.GroupVersionResource
	kind     string
	object   string
	status   string // "" for kinds of which no status is written
	since    string // the first release whose definition has a status
	inside   bool   // a namespace
}

const policyCondition = "{type: cilium.io/x, status: 'True', reason: Why, message: text, lastTransitionTime: '2024-08-20T10:00:00Z'}"

const condition = "{type: cilium.io/x, status: 'True', reason: Why, message: text, observedGeneration: 1, lastTransitionTime: '2024-08-20T10:00:00Z'}"

var allWritten = []written{
	{resource: v2.CiliumNodeResource, kind: "CiliumNode", object: `
spec:
  instance-id: i-1
  ipam:
    podCIDRs: [10.1.0.0/24]
    pre-allocate: 8
    pool: {10.0.0.1: {owner: a, resource: eni-1}}
    pools: {allocated: [{pool: default, cidrs: [10.2.0.0/24], allowFirstIP: true, allowLastIP: true}]}
    static-ip-tags: {a: b}
`, status: `
status:
 azure:
   interfaces:
   - {id: i, name: eth0, mac: m, state: s, addresses: [{ip: 10.0.0.1, subnet: s, state: succeeded}], security-group: g, GatewayIP: 10.0.0.254,
      gateway: 10.0.0.254, cidr: 10.0.0.0/24, ip: 10.0.0.9, subnet: {id: s, cidr: 10.0.0.0/24}}
   - {id: j, GatewayIP: 10.0.1.254, gateway: 10.0.1.254}
 eni:
   enis:
     eni-1: {id: eni-1, ip: 10.0.0.1, mac: m, availability-zone: z, description: d, number: 1, subnet: {id: s, cidr: 10.0.0.0/24},
       vpc: {id: v, primary-cidr: 10.0.0.0/16, cidrs: [10.1.0.0/16]}, addresses: [10.0.0.2], prefixes: [10.0.0.16/28],
       ipv6-prefixes: ['2001:db8::/80'], security-groups: [g], tags: {a: b}, public-ip: 192.0.2.1}
     eni-2: {id: eni-2, public-ip: 192.0.2.2}
 alibaba-cloud:
   enis:
     eni-3: {network-interface-id: eni-3, mac-address: m, type: Primary, instance-id: i, security-groupids: [g], zone-id: z, primary-ip-address: 10.0.0.1,
       vpc: {vpc-id: v, cidr: 10.0.0.0/16, ipv6-cidr: '2001:db8::/56', secondary-cidrs: [10.1.0.0/16]},
       vswitch: {vswitch-id: s, cidr: 10.0.0.0/24, ipv6-cidr: '2001:db8::/64'}, private-ipsets: [{private-ip-address: 10.0.0.1, primary: true}], tags: {a: b}}
 ipam:
   used: {10.0.0.1: {owner: a, resource: eni-1}}
   operator-status: {error: full}
   release-ips: {10.0.0.1: released}
   assigned-static-ip: 192.0.2.1
`},
	{resource: v2.CiliumIdentityResource, kind: "CiliumIdentity", object: "security-labels: {'k8s:app': web}"},
	{resource: v2alpha1.CiliumEndpointSliceResource, kind: "CiliumEndpointSlice", object: `
namespace: shop
endpoints:
- {name: web, id: 7, encryption: {key: 1}, networking: {addressing: [{ipv4: 10.0.0.1, ipv6: '2001:db8::1'}], node: 192.0.2.1},
   named-ports: [{name: http, port: 80, protocol: TCP}], service-account: web, pod-uid: u}
`},
	{resource: v2.CiliumBGPNodeConfigResource, kind: "CiliumBGPNodeConfig", object: `
spec:
  bgpInstances:
  - {name: main, localASN: 64512, localPort: 1790, routerID: 10.0.0.1, peers: [
      {name: tor, peerAddress: 192.0.2.1, peerASN: 64500, localAddress: 192.0.2.10, peerConfigRef: {name: std}},
      {name: gw, peerASN: 64500, autoDiscovery: {mode: DefaultGateway, defaultGateway: {addressFamily: ipv4}}}]}
`},
	{resource: v2.CiliumBGPClusterConfigResource, kind: "CiliumBGPClusterConfig", since: "1.18", status: "status: {conditions: [" + condition + "]}",
		object: "spec: {bgpInstances: [{name: main, localASN: 64512}]}"},
	{resource: v2.CiliumBGPPeerConfigResource, kind: "CiliumBGPPeerConfig", since: "1.18", status: "status: {conditions: [" + condition + "]}", object: "spec: {}"},
	{resource: v2.CiliumLoadBalancerIPPoolResource, kind: "CiliumLoadBalancerIPPool", status: "status: {conditions: [" + condition + "]}",
		object: "spec: {blocks: [{cidr: 10.0.0.0/24}]}"},
	{resource: v2alpha1.CiliumPodIPPoolResource, kind: "CiliumPodIPPool", object: "spec: {ipv4: {cidrs: [10.0.0.0/16], maskSize: 24}, allowFirstIP: true, allowLastIP: true}"},
	{resource: v2.CiliumClusterwideNetworkPolicyResource, kind: "CiliumClusterwideNetworkPolicy", status: "status: {conditions: [" + policyCondition + "]}",
		object: "spec: {endpointSelector: {}, egress: [{toCIDRSet: [{cidr: 192.0.2.1/32}]}]}"},
	{resource: v2.CiliumNetworkPolicyResource, kind: "CiliumNetworkPolicy", inside: true, object: `
spec: {endpointSelector: {}, egress: [{toCIDRSet: [{cidr: 192.0.2.1/32}]}]}
`, status: `
status:
  conditions: [` + policyCondition + `]
  derivativePolicies: {derived: {ok: true, enforcing: false, error: text, lastUpdated: '2024-08-20T10:00:00Z', localPolicyRevision: 1}}
`},
	{resource: v2alpha1.CiliumGatewayClassConfigResource, kind: "CiliumGatewayClassConfig", inside: true, status: "status: {conditions: [" + condition + "]}",
		object: "spec: {}"},
	{resource: v2.CiliumClusterwideEnvoyConfigResource, kind: "CiliumClusterwideEnvoyConfig", object: `
spec:
  services: [{name: a, namespace: b, listener: l}]
  backendServices: [{name: a, namespace: b, number: ['80']}]
  nodeSelector: {matchLabels: {a: b}}
  resources: [{'@type': type.googleapis.com/envoy.config.listener.v3.Listener, name: l}]
`},
}

// K8S-17: the fields that are written, and that the newest definitions have no more, are those that are known.
func TestFieldsThatTheNewestReleaseLacks(t *testing.T) {
	definitions := referencetest.Definitions(t, "1.20")
	for _, w := range allWritten {
		var want []string
		for _, path := range withdrawn[w.groupVersionKind().GroupKind()] {
			want = append(want, path.String())
		}
		lacks := w.shapeIn(t, definitions, w.resource.Version).lackedOf(w.all(t))
		for k := range lacks {
			lacks[k] = strings.NewReplacer("[]", "", "{}", "").Replace(lacks[k])
		}
		if !slices.Equal(lacks, want) {
			t.Errorf("%s lacks %q, want %q", w.kind, lacks, want)
		}
	}
}

// K8S-17: under the definitions of each release, all that duties write is stored as far as the definition has it, without an
// error, and is not written again.
func TestDefinitionsOfReleases(t *testing.T) {
	d := newDesk(t)
	definitions := definitionsOf(t, d.cluster.AdminConfig(t))
	for _, release := range []string{"1.17", "1.18", "1.19", "1.20"} { // in this order, versions are only added
		texts := referencetest.Definitions(t, release)
		all := slices.DeleteFunc(slices.Clone(allWritten), func(w written) bool { return w.definitionIn(texts) == "" })
		for _, w := range all {
			definitions.apply(t, decodeYAML(t, w.definitionIn(texts)))
		}
		for _, w := range all {
			t.Run(release+" "+w.kind, func(t *testing.T) {
				w.awaitPublished(t, d, texts)
				d.countReads()
				d.transport.unserved.every = 0 // the handler of the kind may be behind
				ref := Ref{Resource: w.resource, Name: "release-" + release}
				if w.inside {
					ref.Namespace = d.namespace
				}
				w.checkWrites(t, d, ref, release >= w.since)
			})
		}
	}
}

// checkWrites creates an object, edits it, and replaces it.
func (w written) checkWrites(t *testing.T, d *desk, ref Ref, hasStatus bool) {
	t.Helper()
	until(t, "it is created", func() bool { // once the definition is served
		_, err := d.Create(why(t), w.resource, w.named(t, ref))
		return err == nil || IsAlreadyExists(err, ref)
	})
	d.settles(t, ref, decodeYAML(t, w.object))
	whole := w.named(t, ref)
	if w.status != "" && hasStatus {
		ref.Subresource = "status"
		d.settles(t, ref, decodeYAML(t, w.status))
	}
	whole.SetResourceVersion(d.read(t, ref).GetResourceVersion())
	if _, err := d.Update(why(t), w.resource, whole); err != nil {
		t.Errorf("as a whole: %v", err)
	}
}

// awaitPublished waits until the API server publishes the definition of a release.
func (w written) awaitPublished(t *testing.T, d *desk, definitions map[string][]byte) {
	t.Helper()
	for _, version := range api.Versions(w.resource.GroupResource()) { // the newest first
		if s := w.shapeIn(t, definitions, version); s != nil {
			kind := w.groupVersionKind()
			kind.Version = version
			d.published(t, kind, w.all(t), s.lackedOf(w.all(t))...)
			return
		}
	}
}

func (w written) groupVersionKind() schema.GroupVersionKind {
	return w.resource.GroupVersion().WithKind(w.kind)
}

// all is the object with its status.
func (w written) all(t *testing.T) map[string]any {
	return overlaid(w.named(t, Ref{}).Object, decodeYAML(t, w.status)).(map[string]any)
}

func (w written) definitionIn(definitions map[string][]byte) string {
	return string(definitions[w.resource.GroupResource().String()])
}

// shapeIn is the shape of the kind in its definition, nil for a version that it does not have.
func (w written) shapeIn(t *testing.T, definitions map[string][]byte, version string) *shape {
	t.Helper()
	var definition struct {
		Spec struct {
			Versions []struct {
				Name   string
				Schema struct{ OpenAPIV3Schema publishedSchema }
			}
		}
	}
	if err := yaml.Unmarshal([]byte(w.definitionIn(definitions)), &definition); err != nil {
		t.Fatal(err)
	}
	for _, v := range definition.Spec.Versions {
		if v.Name == version {
			s := v.Schema.OpenAPIV3Schema.shape(false)
			s.fields["metadata"] = nil // has all there can be
			return s
		}
	}
	return nil
}

// named is the object, with a name.
func (w written) named(t *testing.T, ref Ref) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: decodeYAML(t, w.object)}
	u.SetGroupVersionKind(w.groupVersionKind())
	u.SetName(ref.Name)
	u.SetNamespace(ref.Namespace)
	return u
}

func (d *desk) read(t *testing.T, ref Ref) *unstructured.Unstructured {
	t.Helper()
	u, err := d.Get(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// settles sets the fields that it is given, and once they are stored finds no difference.
func (d *desk) settles(t *testing.T, ref Ref, fields map[string]any) {
	t.Helper()
	edit := func(u *unstructured.Unstructured) error {
		u.Object = overlaid(u.Object, fields).(map[string]any)
		return nil
	}
	until(t, "it is stored", func() bool { // once the definition is published
		_, _, err := d.Modify(why(t), ref, edit)
		return err == nil
	})
	for range 2 {
		if _, written, err := d.Modify(why(t), ref, edit); err != nil || written {
			t.Errorf("again: written %v, %v", written, err)
		}
	}
}

// overlaid is a value with the fields of another one, as a duty edits what it has read: what the server has added stays.
func overlaid(value, with any) any {
	switch with := with.(type) {
	case map[string]any:
		if value, ok := value.(map[string]any); ok {
			for name, v := range with {
				value[name] = overlaid(value[name], v)
			}
			return value
		}
	case []any:
		if value, ok := value.([]any); ok && len(value) == len(with) {
			for i, v := range with {
				value[i] = overlaid(value[i], v)
			}
			return value
		}
	}
	return with
}

func decodeYAML(t *testing.T, text string) (content map[string]any) {
	t.Helper()
	body, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = utiljson.Unmarshal(body, &content)
	}
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// definitionClient is for CustomResourceDefinitions.
type definitionClient struct{ dynamic.ResourceInterface }

func definitionsOf(t *testing.T, config *rest.Config) definitionClient {
	t.Helper()
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(transport.CloseIdleConnections)
	client, err := dynamic.NewForConfigAndClient(config, transport)
	if err != nil {
		t.Fatal(err)
	}
	return definitionClient{client.Resource(definitionResource)}
}

// apply creates or replaces a definition, which the test deletes when it ends.
func (c definitionClient) apply(t *testing.T, content map[string]any) {
	t.Helper()
	want := &unstructured.Unstructured{Object: content}
	delete(want.Object, "status")
	has, err := c.Get(t.Context(), want.GetName(), metav1.GetOptions{})
	switch {
	case err == nil:
		want.SetResourceVersion(has.GetResourceVersion())
		_, err = c.ResourceInterface.Update(t.Context(), want, metav1.UpdateOptions{})
	case apierrors.IsNotFound(err):
		_, err = c.ResourceInterface.Create(t.Context(), want, metav1.CreateOptions{})
		t.Cleanup(func() { _ = c.Delete(context.WithoutCancel(t.Context()), want.GetName(), metav1.DeleteOptions{}) })
	}
	if err != nil {
		t.Fatal(err)
	}
}
