// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package crds

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"

	"github.com/skep-operator/skep/resources/api"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/referencetest"
)

// unstructuredOf is a CRD as a read returns it.
func unstructuredOf(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition) *unstructured.Unstructured {
	t.Helper()
	text, err := json.Marshal(crd)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(text); err != nil {
		t.Fatal(err)
	}
	return u
}

// builtIn is the definition of a kind that is built in.
func builtIn(t *testing.T, kind api.Kind) *unstructured.Unstructured {
	t.Helper()
	crd, err := kind.UnstructuredCRD(edition)
	if err != nil {
		t.Fatal(err)
	}
	return crd
}

func ciliumNode(t *testing.T) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	kind, _ := api.KindNamed("CiliumNode")
	crd, err := kind.CRD(edition)
	if err != nil {
		t.Fatal(err)
	}
	return crd
}

// rewriteTexts changes all that a schema says to people, and nothing else.
func rewriteTexts(s *apiextensionsv1.JSONSchemaProps) {
	s.Title, s.Description = "a title", s.Description+", in other words"
	s.Example = &apiextensionsv1.JSON{Raw: []byte(`"an example"`)}
	s.ExternalDocs = &apiextensionsv1.ExternalDocumentation{URL: "https://example.com"}
	for name, p := range s.Properties {
		rewriteTexts(&p)
		s.Properties[name] = p
	}
	if s.Items != nil && s.Items.Schema != nil {
		rewriteTexts(s.Items.Schema)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		rewriteTexts(s.AdditionalProperties.Schema)
	}
}

// CRD-16: what a definition says to people is no part of its schema, wherever it
// stands; properties may well be called so.
func TestSchemasAreComparedWithoutTexts(t *testing.T) {
	for _, kind := range api.Kinds() {
		installed, err := kind.CRD(edition)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range installed.Spec.Versions {
			rewriteTexts(v.Schema.OpenAPIV3Schema)
		}
		if d := decide(kind, edition, unstructuredOf(t, installed), builtIn(t, kind)); d.result != equal {
			t.Errorf("%s with other descriptions is %s", kind.Name, d.result)
		}
	}
}

// edition is that of the oldest release.
var edition = release.All()[0].Edition()

var ourVersion = edition.SchemaVersion()

// CRD-5, CRD-6 and CRD-9; CRD-E2 to CRD-E6.
func TestDecide(t *testing.T) {
	labelled := func(version string) func(*apiextensionsv1.CustomResourceDefinition) {
		return func(crd *apiextensionsv1.CustomResourceDefinition) { crd.Labels[api.SchemaVersionLabel] = version }
	}
	for name, test := range map[string]struct {
		change func(*apiextensionsv1.CustomResourceDefinition)
		want   action
		result result
	}{
		"ours":                       {labelled(ourVersion), leave, equal},
		"older":                      {labelled("1.30.0"), update, ""},
		"newer":                      {labelled("1.33.0"), leave, newer},
		"short with a v":             {labelled("v1.30"), update, ""},
		"leading zeros":              {labelled("v1.030.08-alpha.1"), leave, equal},
		"no version":                 {labelled("latest"), update, ""},
		"empty":                      {labelled(""), update, ""},
		"a suffix that is dropped":   {labelled("1.31.0-dev"), leave, newer},
		"that of the release":        {labelled("1.30.8"), leave, newer},
		"the release's with one":     {labelled("1.30.8-dev"), leave, newer},
		"before ours":                {labelled("1.30.8-alpha.0"), update, ""},
		"a beta of the release":      {labelled("1.30.8-beta.2"), leave, newer},
		"a release candidate":        {labelled("1.30.7-rc1"), update, ""},
		"a snapshot of an older one": {labelled("1.30.7-snapshot"), update, ""},
		"what we had before":         {labelled("1.30.1"), update, ""},
		"an alpha of a newer one":    {labelled("1.30.9-alpha.1"), leave, newer},
		"a build of ours":            {labelled(ourVersion + "+abc"), leave, equal},
		"no label":                   {func(c *apiextensionsv1.CustomResourceDefinition) { c.Labels = nil }, update, ""},
		"no schema":                  {func(c *apiextensionsv1.CustomResourceDefinition) { c.Spec.Versions[0].Schema = nil }, update, ""},
		"no versions":                {func(c *apiextensionsv1.CustomResourceDefinition) { c.Spec.Versions = nil }, update, ""},
		"ours, edited by hand": {func(c *apiextensionsv1.CustomResourceDefinition) {
			c.Spec.Versions[0].Schema.OpenAPIV3Schema.Required = []string{"spec", "mine"}
		}, leave, drifted},
		"ours, with other texts": {func(c *apiextensionsv1.CustomResourceDefinition) {
			rewriteTexts(c.Spec.Versions[0].Schema.OpenAPIV3Schema)
		}, leave, equal},
		"ours, without a property called description": {func(c *apiextensionsv1.CustomResourceDefinition) {
			delete(c.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties, "spec")
			c.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["description"] = apiextensionsv1.JSONSchemaProps{Type: "object"}
		}, leave, drifted},
		"ours, with another bound of a property": {func(c *apiextensionsv1.CustomResourceDefinition) {
			spec := c.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
			bound := 7.0
			spec.Properties["bootid"] = apiextensionsv1.JSONSchemaProps{Type: "string", Maximum: &bound}
		}, leave, drifted},
		"ours, with one version more": {func(c *apiextensionsv1.CustomResourceDefinition) {
			c.Spec.Versions = append(c.Spec.Versions, c.Spec.Versions[0])
		}, leave, drifted},
		"being deleted": {func(c *apiextensionsv1.CustomResourceDefinition) {
			c.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		}, wait, ""},
		"newer, in a schema of its own": {func(c *apiextensionsv1.CustomResourceDefinition) {
			labelled("2.0.0")(c)
			c.Spec.Versions[0].Schema.OpenAPIV3Schema.Description = "new"
		}, leave, newer},
		"older, and older than any label": {labelled("0.0.1"), update, ""},
	} {
		t.Run(name, func(t *testing.T) {
			installed := ciliumNode(t)
			test.change(installed)
			kind, _ := api.KindNamed("CiliumNode")
			got := decide(kind, edition, unstructuredOf(t, installed), builtIn(t, kind))
			if got.action != test.want || got.result != test.result {
				t.Errorf("decided to %s (%q), want to %s (%q)", got.action, got.result, test.want, test.result)
			}
		})
	}
}

// CRD-8: what the conditions say, in whatever order they stand.
func TestEstablished(t *testing.T) {
	established1 := apiextensionsv1.CustomResourceDefinitionCondition{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}
	refused := apiextensionsv1.CustomResourceDefinitionCondition{
		Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionFalse, Reason: "ShortNamesConflict", Message: `"cn" is taken`,
	}
	const refusal = `its names are not accepted, another CRD has them (ShortNamesConflict): "cn" is taken`
	for name, test := range map[string]struct {
		conditions []apiextensionsv1.CustomResourceDefinitionCondition
		want       bool
		err        string
	}{
		"no condition yet":          {nil, false, ""},
		"established":               {[]apiextensionsv1.CustomResourceDefinitionCondition{established1}, true, ""},
		"refused":                   {[]apiextensionsv1.CustomResourceDefinitionCondition{refused}, false, refusal},
		"established, then refused": {[]apiextensionsv1.CustomResourceDefinitionCondition{established1, refused}, false, refusal},
		"refused, and established":  {[]apiextensionsv1.CustomResourceDefinitionCondition{refused, established1}, false, refusal},
	} {
		t.Run(name, func(t *testing.T) {
			crd := ciliumNode(t)
			crd.Status.Conditions = test.conditions
			conditions, err := decodeConditions(unstructuredOf(t, crd))
			if err != nil {
				t.Fatal(err)
			}
			got, err := established(conditions)
			text := ""
			if err != nil {
				text = err.Error()
			}
			if got != test.want || text != test.err {
				t.Errorf("got %t and error %q, want %t and %q", got, text, test.want, test.err)
			}
		})
	}
}

// Section "Which kinds"; CRD-20, CRD-E1 and CRD-E11 (14 to 18). Pools of load balancers are always among them, number 45 of the contract's
// lb-ipam.md.
func TestWanted(t *testing.T) {
	always := "CIDRGroup ClusterwideNetworkPolicy Endpoint Identity L2AnnouncementPolicy LoadBalancerIPPool NetworkPolicy Node NodeConfig PodIPPool"
	const bgp = " BGPAdvertisement BGPClusterConfig BGPNodeConfig BGPNodeConfigOverride BGPPeerConfig"
	for name, test := range map[string]struct {
		change func(*Config, *cluster.Config, *envoy.Config)
		less   string
		more   [4]string // by release
	}{
		"defaults": {func(*Config, *cluster.Config, *envoy.Config) {}, "", [4]string{"ExternalWorkload"}},
		"no endpoints, with a kvstore": {func(_ *Config, s *cluster.Config, _ *envoy.Config) { s.KVStore, s.DisableEndpointCRD = "etcd", true },
			"Endpoint", [4]string{"ExternalWorkload"}},
		"no endpoints, without one": {func(_ *Config, s *cluster.Config, _ *envoy.Config) { s.DisableEndpointCRD = true }, "", [4]string{"ExternalWorkload"}},
		"slices": {func(_ *Config, s *cluster.Config, _ *envoy.Config) { s.EnableCiliumEndpointSlice = true },
			"", [4]string{"EndpointSlice ExternalWorkload", "EndpointSlice", "EndpointSlice", "EndpointSlice"}},
		"Envoy": {func(_ *Config, s *cluster.Config, _ *envoy.Config) { s.EnableEnvoyConfig = true },
			"", [4]string{"EnvoyConfig ClusterwideEnvoyConfig ExternalWorkload", "EnvoyConfig ClusterwideEnvoyConfig", "EnvoyConfig ClusterwideEnvoyConfig", "EnvoyConfig ClusterwideEnvoyConfig"}},
		"Gateway API": {func(_ *Config, _ *cluster.Config, g *envoy.Config) { g.EnableGatewayAPI = true },
			"", [4]string{"ExternalWorkload", "GatewayClassConfig", "GatewayClassConfig", "GatewayClassConfig"}},
		"egress gateway": {func(c *Config, _ *cluster.Config, _ *envoy.Config) { c.EnableEgressGateway = true },
			"", [4]string{"EgressGatewayPolicy ExternalWorkload", "EgressGatewayPolicy", "EgressGatewayPolicy", "EgressGatewayPolicy"}},
		"egress gateway by its older name": {func(c *Config, _ *cluster.Config, _ *envoy.Config) { c.EnableIPv4EgressGateway = true },
			"", [4]string{"EgressGatewayPolicy ExternalWorkload", "EgressGatewayPolicy", "EgressGatewayPolicy", "EgressGatewayPolicy"}},
		"local redirect": {func(c *Config, _ *cluster.Config, _ *envoy.Config) { c.EnableLocalRedirectPolicy = true },
			"", [4]string{"LocalRedirectPolicy ExternalWorkload", "LocalRedirectPolicy", "LocalRedirectPolicy", "LocalRedirectPolicy"}},
		"plugins": {func(c *Config, _ *cluster.Config, _ *envoy.Config) { c.EnableDatapathPlugins = true },
			"", [4]string{"ExternalWorkload", "", "", "DatapathPlugin"}},
		"BGP": {func(_ *Config, s *cluster.Config, _ *envoy.Config) { s.EnableBGPControlPlane = true },
			"", [4]string{"ExternalWorkload BGPPeeringPolicy" + bgp, "BGPPeeringPolicy" + bgp, bgp, bgp}},
		"no policies of a namespace": {func(_ *Config, s *cluster.Config, _ *envoy.Config) { s.EnableCiliumNetworkPolicy = false },
			"NetworkPolicy", [4]string{"ExternalWorkload"}},
		"no policies": {func(_ *Config, s *cluster.Config, _ *envoy.Config) {
			s.EnableCiliumNetworkPolicy, s.EnableCiliumClusterwideNetworkPolicy = false, false
		}, "NetworkPolicy ClusterwideNetworkPolicy CIDRGroup", [4]string{"ExternalWorkload"}},
	} {
		for i, r := range release.All() {
			t.Run(name+" "+r.String(), func(t *testing.T) {
				var c Config
				shared, gateways := cluster.DefaultConfig, envoy.Config{}
				shared.Release = r
				test.change(&c, &shared, &gateways)
				want := sets.New(strings.Fields(always + " " + test.more[i])...).Difference(sets.New(strings.Fields(test.less)...))
				got := sets.New[string]()
				for _, kind := range wanted(c, shared, gateways) {
					got.Insert(strings.TrimPrefix(kind.Name, "Cilium"))
				}
				if !got.Equal(want) {
					t.Errorf("too many: %v, missing: %v", sets.List(got.Difference(want)), sets.List(want.Difference(got)))
				}
			})
		}
	}
}

// CRD-21: definitions of ours for another release differ in what they refuse, and follow the release that runs; those of a newer
// revision do not.
func TestDecideOtherRelease(t *testing.T) {
	kind, _ := api.KindNamed("CiliumNetworkPolicy")
	for _, from := range release.All() {
		for _, to := range release.All() {
			installed, err := kind.CRD(from.Edition())
			if err != nil {
				t.Fatal(err)
			}
			ours, err := kind.UnstructuredCRD(to.Edition())
			if err != nil {
				t.Fatal(err)
			}
			want := decision{action: update, installed: from.Edition().SchemaVersion()}
			if from == to {
				want.action, want.result = leave, equal
			}
			if got := decide(kind, to.Edition(), unstructuredOf(t, installed), ours); got != want {
				t.Errorf("from %v to %v: %+v", from, to, got)
			}
			installed.Labels[api.SchemaVersionLabel] = release.SchemaVersion.In(release.Newest()) + "-alpha.1000"
			if got := decide(kind, to.Edition(), unstructuredOf(t, installed), ours); got.action != leave || got.result != newer {
				t.Errorf("a newer revision: %+v", got)
			}
		}
	}
}

// CRD-21: the definitions of the originals have no field that ours lack, and one that a user has added keeps a definition.
func TestLostFields(t *testing.T) {
	for _, r := range release.All() {
		for name, text := range referencetest.Definitions(t, r.String()) {
			installed := &unstructured.Unstructured{}
			if err := yaml.Unmarshal(text, &installed.Object); err != nil {
				t.Fatal(err)
			}
			for _, kind := range api.Kinds() {
				if kind.CRDName() != name {
					continue
				}
				if lost := lostField(installed, builtIn(t, kind)); lost != "" {
					t.Errorf("%v %s: %s", r, name, lost)
				}
			}
		}
	}
	kind, _ := api.KindNamed("CiliumNode")
	installed := ciliumNode(t)
	installed.Labels[api.SchemaVersionLabel] = "1.29.9"
	installed.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["mine"] = apiextensionsv1.JSONSchemaProps{Type: "string"}
	if got := decide(kind, edition, unstructuredOf(t, installed), builtIn(t, kind)); got != (decision{leave, "1.29.9", wider, "v2 .spec.mine"}) {
		t.Errorf("%+v", got)
	}
}

// What is sent has nothing that only a server may say.
func TestBody(t *testing.T) {
	for _, kind := range api.Kinds() {
		content := builtIn(t, kind).Object
		meta := content["metadata"].(map[string]any)
		if len(content) != 4 || len(meta) != 2 || len(meta["labels"].(map[string]any)) != 1 {
			t.Errorf("%s: sent are %v, and metadata %v", kind.Name, content, meta)
		}
	}
}

// CRD-19: of the multi-cluster services API, an older release of ours is updated, and what others installed is left alone.
func TestDecideMulticluster(t *testing.T) {
	kind, known := api.KindNamed("ServiceImport")
	if !known {
		t.Fatal("there is no kind ServiceImport")
	}
	for version, want := range map[string]decision{
		api.MulticlusterVersion: {leave, api.MulticlusterVersion, equal, ""}, "v0.4.1": {update, "v0.4.1", "", ""}, "v9.0.0": {leave, "v9.0.0", newer, ""},
		"": {leave, "", foreign, ""}, "main": {leave, "main", foreign, ""},
	} {
		installed, err := kind.CRD(edition)
		if err != nil {
			t.Fatal(err)
		}
		if installed.Labels[kind.VersionLabel()] = version; version == "" {
			installed.Labels = nil
		}
		if got := decide(kind, edition, unstructuredOf(t, installed), builtIn(t, kind)); got != want {
			t.Errorf("version %q: %+v, want %+v", version, got, want)
		}
	}
}

// CRD-19: both options are needed.
func TestWantedMulticluster(t *testing.T) {
	for _, on := range []bool{true, false} {
		for _, install := range []bool{true, false} {
			n := len(wanted(Config{ClusterMeshMCSAPIInstallCRDs: install}, cluster.Config{ClusterMeshEnableMCSAPI: on}, envoy.Config{})) - len(wanted(Config{}, cluster.Config{}, envoy.Config{}))
			if want := map[bool]int{true: 2}[on && install]; n != want {
				t.Errorf("enabled %t, installed %t: %d more kinds", on, install, n)
			}
		}
	}
}
