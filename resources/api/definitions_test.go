// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package api_test

import (
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/skep-operator/skep/resources/api"
	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/api/v2alpha1"
)

// contract has a line for each kind, with what agents and scripts rely on:
// plural, short names, categories, scope, versions with the stored one first, subresources and printer columns.
const contract = `
CiliumBGPAdvertisement         | ciliumbgpadvertisements          | cbgpadvert         | cilium,ciliumbgp    | Cluster    | v2,v2alpha1 | {}     | Age
CiliumBGPClusterConfig         | ciliumbgpclusterconfigs          | cbgpcluster        | cilium,ciliumbgp    | Cluster    | v2,v2alpha1 | status | Age
CiliumBGPNodeConfig            | ciliumbgpnodeconfigs             | cbgpnode           | cilium,ciliumbgp    | Cluster    | v2,v2alpha1 | status | Age
CiliumBGPNodeConfigOverride    | ciliumbgpnodeconfigoverrides     | cbgpnodeoverride   | cilium,ciliumbgp    | Cluster    | v2,v2alpha1 | {}     | Age
CiliumBGPPeerConfig            | ciliumbgppeerconfigs             | cbgppeer           | cilium,ciliumbgp    | Cluster    | v2,v2alpha1 | status | Age
CiliumBGPPeeringPolicy         | ciliumbgppeeringpolicies         | bgpp               | cilium,ciliumbgp    | Cluster    | v2alpha1    | {}     | Age
CiliumCIDRGroup                | ciliumcidrgroups                 | ccg                | cilium              | Cluster    | v2,v2alpha1 | -      |
CiliumClusterwideEnvoyConfig   | ciliumclusterwideenvoyconfigs    | ccec               | cilium              | Cluster    | v2          | {}     | Age
CiliumClusterwideNetworkPolicy | ciliumclusterwidenetworkpolicies | ccnp               | cilium,ciliumpolicy | Cluster    | v2          | status | Valid
CiliumDatapathPlugin           | ciliumdatapathplugins            | cddp               | cilium              | Cluster    | v2alpha1    | -      |
CiliumEgressGatewayPolicy      | ciliumegressgatewaypolicies      | cegp               | cilium,ciliumpolicy | Cluster    | v2          | {}     | Age
CiliumEndpoint                 | ciliumendpoints                  | cep,ciliumep       | cilium              | Namespaced | v2          | {}     | Security Identity,Ingress Enforcement/1,Egress Enforcement/1,Endpoint State,IPv4,IPv6
CiliumEndpointSlice            | ciliumendpointslices             | ces                | cilium              | Cluster    | v2alpha1    | -      |
CiliumEnvoyConfig              | ciliumenvoyconfigs               | cec                | cilium              | Namespaced | v2          | {}     | Age
CiliumExternalWorkload         | ciliumexternalworkloads          | cew                | cilium              | Cluster    | v2          | status | Cilium ID,IP
CiliumGatewayClassConfig       | ciliumgatewayclassconfigs        | cgcc               | cilium              | Namespaced | v2alpha1    | status | Accepted,Age,Description/1
CiliumIdentity                 | ciliumidentities                 | ciliumid           | cilium              | Cluster    | v2          | status | Namespace,Age
CiliumL2AnnouncementPolicy     | ciliuml2announcementpolicies     | l2announcement     | cilium              | Cluster    | v2alpha1    | status | Age
CiliumLoadBalancerIPPool       | ciliumloadbalancerippools        | ippools,ippool,lbippool,lbippools | cilium | Cluster  | v2,v2alpha1 | status | Disabled,Conflicting,IPs Available,Age
CiliumLocalRedirectPolicy      | ciliumlocalredirectpolicies      | clrp               | cilium,ciliumpolicy | Namespaced | v2          | {}     | Age
CiliumNetworkPolicy            | ciliumnetworkpolicies            | cnp,ciliumnp       | cilium,ciliumpolicy | Namespaced | v2          | status | Age,Valid
CiliumNode                     | ciliumnodes                      | cn,ciliumn         | cilium              | Cluster    | v2          | status | CiliumInternalIP,InternalIP,Age
CiliumNodeConfig               | ciliumnodeconfigs                |                    | cilium              | Namespaced | v2,v2alpha1 | -      |
CiliumPodIPPool                | ciliumpodippools                 | cpip               | cilium              | Cluster    | v2alpha1    | -      |
`

func TestDefinitionsKeepTheContract(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(contract), "\n")
	if len(lines) != len(api.Kinds()) {
		t.Fatalf("%d kinds, want %d", len(api.Kinds()), len(lines))
	}
	crds, err := api.CRDs(api.Edition{})
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range lines {
		want := strings.Split(line, "|")
		for j := range want {
			want[j] = strings.TrimSpace(want[j])
		}
		if got := summary(crds[i]); !slices.Equal(got, want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
}

func summary(crd *apiextensionsv1.CustomResourceDefinition) []string {
	names, stored := crd.Spec.Names, crd.Spec.Versions[0]
	var versions, columns []string
	for _, version := range crd.Spec.Versions {
		versions = append(versions, version.Name)
	}
	for _, column := range stored.AdditionalPrinterColumns {
		text := column.Name
		if column.Priority != 0 {
			text += fmt.Sprintf("/%d", column.Priority)
		}
		columns = append(columns, text)
	}
	subresources := "-"
	switch {
	case stored.Subresources != nil && stored.Subresources.Status != nil:
		subresources = "status"
	case stored.Subresources != nil:
		subresources = "{}"
	}
	return []string{
		names.Kind, names.Plural, strings.Join(names.ShortNames, ","), strings.Join(names.Categories, ","),
		string(crd.Spec.Scope), strings.Join(versions, ","), subresources, strings.Join(columns, ","),
	}
}

// deprecated are versions that are so although they are the only ones of their kinds.
var deprecated = []string{"CiliumBGPPeeringPolicy v2alpha1", "CiliumDatapathPlugin v2alpha1"}

// warnings are what clients of a deprecated version are told, if more than that it is deprecated.
var warnings = map[string]string{
	"CiliumNodeConfig v2alpha1": "cilium.io/v2alpha1 CiliumNodeConfig will be deprecated in cilium v1.16; use cilium.io/v2 CiliumNodeConfig",
	"CiliumBGPPeeringPolicy v2alpha1": "cilium.io/v2alpha1 CiliumBGPPeeringPolicy is deprecated, and agents from 1.19 on do not read it; " +
		"use CiliumBGPClusterConfig, CiliumBGPPeerConfig and CiliumBGPAdvertisement of cilium.io/v2",
}

// TestDefinitionsHaveNothingElse looks at the rest of what is sent when a definition is created.
func TestDefinitionsHaveNothingElse(t *testing.T) {
	for _, kind := range api.Kinds() {
		crd, err := kind.CRD(api.Edition{})
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.ValueOf(crd.Status).IsZero() {
			t.Errorf("%s: status %v", kind.Name, crd.Status)
		}
		definition := definitionOf(t, kind.Name, api.Edition{})
		names := asTree(at(definition, "spec", "names"))
		if names["singular"] != strings.ToLower(kind.Name) {
			t.Errorf("%s: singular %v", kind.Name, names["singular"])
		}
		if _, given := names["listKind"]; given {
			t.Errorf("%s: the list kind is given, which the API server fills in", kind.Name)
		}
		wantMetadata := tree{"name": kind.CRDName(), "labels": tree{"io.cilium.k8s.crd.schema.version": api.Edition{}.SchemaVersion()}}
		if got := definition["metadata"]; asText(got) != asText(wantMetadata) {
			t.Errorf("%s: metadata %v, want %v", kind.Name, asText(got), asText(wantMetadata))
		}
		if got, want := union(asTree(definition["spec"]), nil), []string{"group", "names", "scope", "versions"}; !slices.Equal(got, want) {
			t.Errorf("%s: the spec has %v, want %v", kind.Name, got, want)
		}
		for i, version := range asList(at(definition, "spec", "versions")) {
			version := asTree(version)
			if version["served"] != true || version["storage"] != (i == 0) {
				t.Errorf("%s %v: served %v, stored %v", kind.Name, version["name"], version["served"], version["storage"])
			}
			name := fmt.Sprintf("%s %v", kind.Name, version["name"])
			if isOld := i == 1 || slices.Contains(deprecated, name); isOld != (version["deprecated"] == true) {
				t.Errorf("%s: deprecated %v", name, version["deprecated"])
			}
			if got, _ := version["deprecationWarning"].(string); got != warnings[name] {
				t.Errorf("%s: warning %q", name, got)
			}
		}
	}
}

// TestEveryFieldIsDescribed demands that "kubectl explain" has something to say everywhere.
func TestEveryFieldIsDescribed(t *testing.T) {
	described := 0
	var visit func(path string, schema tree)
	visit = func(path string, schema tree) {
		properties := asTree(schema["properties"])
		for _, name := range union(properties, nil) {
			property := asTree(properties[name])
			if text, _ := property["description"].(string); text == "" {
				t.Errorf("%s.%s has no description", path, name)
			}
			described++
			visit(path+"."+name, property)
		}
		for _, below := range []string{"items", "additionalProperties"} {
			if child := asTree(schema[below]); child != nil {
				visit(path+"[]", child)
			}
		}
	}
	for _, kind := range api.Kinds() {
		for _, version := range asList(at(definitionOf(t, kind.Name, api.Edition{}), "spec", "versions")) {
			whole := asTree(at(asTree(version), "schema", "openAPIV3Schema"))
			if whole["description"] == "" || whole["description"] == nil {
				t.Errorf("%s has no description", kind.Name)
			}
			delete(asTree(whole["properties"]), "metadata")
			visit(kind.Name, whole)
		}
	}
	t.Logf("%d descriptions", described)
}

// TestKindsAreAllThereIs holds the table of kinds against the files, the schemes and itself.
func TestKindsAreAllThereIs(t *testing.T) {
	var names, files []string
	for _, kind := range api.Kinds() {
		names = append(names, kind.Name)
		files = append(files, kind.CRDName())
		if found, known := api.KindNamed(kind.Name); !known || found != kind {
			t.Errorf("KindNamed(%q) is %v, %v", kind.Name, found, known)
		}
		crd, err := kind.CRD(api.Edition{})
		if err != nil {
			t.Fatal(err)
		}
		if crd.Spec.Names.Kind != kind.Name || crd.Spec.Group != kind.Resource.Group || !slices.Equal(versionsOf(crd), kind.Served()) {
			t.Errorf("%v has the definition of %s.%s %s", kind, crd.Spec.Names.Kind, crd.Spec.Group, crd.Spec.Versions[0].Name)
		}
	}
	if !slices.IsSorted(names) {
		t.Errorf("the kinds are not in order: %v", names)
	}
	if _, known := api.KindNamed("Pod"); known {
		t.Error("a kind of another group is known")
	}
	slices.Sort(files)
	for folder, format := range map[string]string{"crds": "yaml", "crds/json": "json"} {
		generated, err := fs.Glob(os.DirFS(folder), "*.*")
		if err != nil {
			t.Fatal(err)
		}
		want := make([]string, len(files))
		for i, name := range files {
			want[i] = name + "." + format
		}
		if !slices.Equal(generated, want) {
			t.Errorf("%s has %v, want %v", folder, generated, want)
		}
	}
	if got, want := registeredKinds(), served(t); !slices.Equal(got, want) {
		t.Errorf("the scheme has %v, want %v", got, want)
	}
}

func versionsOf(crd *apiextensionsv1.CustomResourceDefinition) []string {
	var names []string
	for _, version := range crd.Spec.Versions {
		names = append(names, version.Name)
	}
	return names
}

// registeredKinds returns the kinds of the scheme that have a list beside them.
func registeredKinds() []string {
	types := scheme()
	var kinds []string
	for _, version := range []schema.GroupVersion{v2.SchemeGroupVersion, v2alpha1.SchemeGroupVersion} {
		for name := range types.KnownTypes(version) {
			if types.Recognizes(version.WithKind(name + "List")) {
				kinds = append(kinds, version.WithKind(name).String())
			}
		}
	}
	slices.Sort(kinds)
	return kinds
}

// served returns the kinds of all versions of the definitions.
func served(t *testing.T) []string {
	t.Helper()
	crds, err := api.CRDs(api.Edition{})
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, crd := range crds {
		for _, version := range crd.Spec.Versions {
			kinds = append(kinds, schema.GroupVersionKind{Group: crd.Spec.Group, Version: version.Name, Kind: crd.Spec.Names.Kind}.String())
		}
	}
	slices.Sort(kinds)
	return kinds
}

// TestManifestsHaveOneContent compares the definitions that are embedded with those that people read, which have no field
// that an API server does not know, and with themselves after a way through structs: comparisons with what an API server
// returns rely on that.
func TestManifestsHaveOneContent(t *testing.T) {
	for _, kind := range slices.Concat(api.Kinds(), api.MulticlusterKinds()) {
		crd, err := kind.CRD(api.Edition{})
		if err != nil {
			t.Fatal(err)
		}
		embedded, err := kind.UnstructuredCRD(api.Edition{})
		if err != nil {
			t.Fatal(err)
		}
		content := definitionOf(t, kind.Name, api.Edition{})
		delete(content, "status") // zero, see TestDefinitionsHaveNothingElse
		if !reflect.DeepEqual(content, embedded.Object) {
			t.Errorf("%s: as structs the definition is %s, embedded is %s", kind.Name, asText(content), asText(embedded.Object))
		}
		if kind.IsMulticluster() {
			continue
		}
		text, err := os.ReadFile("crds/" + kind.CRDName() + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		read := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(text, read); err != nil {
			t.Errorf("%s: %v", kind.Name, err)
		}
		read.Labels = crd.Labels // which no file has
		if !reflect.DeepEqual(read, crd) {
			t.Errorf("%s: in YAML the definition is %s, embedded is %s", kind.Name, asText(read), asText(crd))
		}
	}
}

// TestCRDsAreTheCallers demands that what a caller changes is not seen by the next.
func TestCRDsAreTheCallers(t *testing.T) {
	kind := api.Kinds()[0]
	before, err := kind.CRD(api.Edition{})
	if err != nil {
		t.Fatal(err)
	}
	before.Labels[api.SchemaVersionLabel] = "changed"
	api.Kinds()[0].Name = "changed"
	after, err := api.Kinds()[0].CRD(api.Edition{})
	if err != nil {
		t.Fatal(err)
	}
	if after.Labels[api.SchemaVersionLabel] != (api.Edition{}).SchemaVersion() || api.Kinds()[0] != kind {
		t.Error("a change of one caller is seen by another")
	}
}

func BenchmarkCRDs(b *testing.B) {
	for b.Loop() {
		if _, err := api.CRDs(api.Edition{}); err != nil {
			b.Fatal(err)
		}
	}
}
