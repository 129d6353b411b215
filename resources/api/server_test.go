// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package api_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/skep-operator/skep/resources/api"
)

// TestServerAcceptsDefinitions holds each definition against what an API server checks when it is created:
// names, structural schemas, list types, defaults, and the validation rules with their cost.
func TestServerAcceptsDefinitions(t *testing.T) {
	for _, kind := range api.Kinds() {
		for _, edition := range []api.Edition{{}, newest.edition} {
			accept(t, kind, edition)
		}
	}
}

func accept(t *testing.T, kind api.Kind, edition api.Edition) {
	t.Helper()
	crd := internalDefinition(t, kind, edition)
	// An API server sets this on creation, and checks it together with the rest.
	for _, version := range crd.Spec.Versions {
		if version.Storage {
			crd.Status.StoredVersions = []string{version.Name}
		}
	}
	for _, err := range crdvalidation.ValidateCustomResourceDefinition(t.Context(), crd) {
		t.Errorf("%s %s: %v", kind.Name, edition.Label, err)
	}
}

// TestServerAcceptsExamples shows an API server one object of each kind, all of whose fields it keeps.
func TestServerAcceptsExamples(t *testing.T) {
	waiting := map[string]bool{}
	for _, kind := range api.Kinds() {
		waiting[kind.Name] = true
	}
	for name, object := range examples(t) {
		server := serverFor(t, object, api.Edition{})
		for _, err := range server.create(t, object) {
			t.Errorf("%s: %v", name, err)
		}
		pruned := pruning.PruneWithOptions(runtime.DeepCopyJSON(object), server.schema, true,
			schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
		if len(pruned) != 0 {
			t.Errorf("%s: these fields are dropped: %v", name, pruned)
		}
		delete(waiting, object["kind"].(string))
	}
	if len(waiting) != 0 {
		t.Errorf("there is no example of %v", slices.Sorted(maps.Keys(waiting)))
	}
}

// TestServerRefuses changes one thing of an example that makes it wrong.
func TestServerRefuses(t *testing.T) {
	for _, wrong := range []struct {
		example string
		path    []string
		value   any
		because string
	}{
		{"ciliumnetworkpolicy", []string{"spec", "nodeSelector"}, tree{}, "must validate one and only one schema"},
		{"ciliumnetworkpolicy", []string{"spec", "endpointSelector", "matchLabels", "a"}, strings.Repeat("x", 64), "may not be more than 63"},
		{"ciliumnetworkpolicy", []string{"spec", "endpointSelector", "matchLabels", "a"}, "-", "should match"},
		{"ciliumnetworkpolicy", []string{"spec", "ingress"}, []any{tree{"fromEntities": []any{"moon"}}}, "supported values"},
		{"ciliumnetworkpolicy", []string{"spec", "ingress"}, []any{tree{"toPorts": []any{tree{"ports": []any{tree{"port": "http//"}}}}}}, "should match"},
		{"ciliumnetworkpolicy", []string{"spec", "ingress"}, []any{tree{"icmps": []any{tree{"fields": []any{tree{"type": "Ping"}}}}}}, "should match"},
		{"ciliumnetworkpolicy", []string{"spec", "egress"}, []any{tree{"toPorts": []any{tree{"rules": tree{"http": []any{}, "dns": []any{}}}}}}, "must validate one and only one schema"},
		{"ciliumnetworkpolicy", []string{"spec", "egress"}, []any{tree{"toCIDRSet": []any{tree{"except": []any{}}}}}, "must validate one and only one schema"},
		{"ciliumnode", []string{"spec", "ipam", "pre-allocate"}, int64(-1), "greater than or equal to 0"},
		{"ciliumnode", []string{"status", "ipam", "release-ips"}, tree{"10.0.0.1": "lost"}, "supported values"},
		{"ciliumidentity", []string{"security-labels"}, nil, "Required value"},
		{"ciliumpodippool", []string{"spec", "ipv4", "maskSize"}, int64(33), "less than or equal to 32"},
		{"ciliumpodippool", []string{"spec", "ipv6", "cidrs"}, []any{}, "at least 1"},
		{"ciliumbgpclusterconfig", []string{"spec", "bgpInstances"}, []any{tree{"name": "a"}, tree{"name": "a"}}, "Duplicate value"},
		{"ciliumlocalredirectpolicy", []string{"spec", "redirectFrontend", "addressMatcher"}, tree{"ip": "10.0.0.1", "toPorts": []any{}}, "must validate one and only one schema"},
	} {
		t.Run(wrong.example+" "+strings.Join(wrong.path, "."), func(t *testing.T) {
			object := examples(t)[wrong.example]
			set(object, wrong.value, wrong.path...)
			demand(t, serverFor(t, object, api.Edition{}).create(t, object), wrong.because)
		})
	}
}

// CRD-22: TestServerRefusesByEdition stores what agents of older releases take: each edition refuses what its own agents do not.
func TestServerRefusesByEdition(t *testing.T) {
	for _, wrong := range []struct {
		example string
		path    []string
		value   any
		because string
		asked   api.Admission
	}{
		{"ciliumnetworkpolicy", []string{"spec", "ingress"}, []any{tree{"fromRequires": []any{tree{"matchLabels": tree{"a": "b"}}}}}, "must have at most 0 items", api.Admission{RefuseRequires: true}},
		{"ciliumclusterwidenetworkpolicy", []string{"specs"}, []any{tree{"endpointSelector": tree{}, "egressDeny": []any{tree{"toRequires": []any{tree{}}}}}}, "must have at most 0 items", api.Admission{RefuseRequires: true}},
		{"ciliumnetworkpolicy", []string{"spec", "ingress"}, []any{tree{"toPorts": []any{tree{"rules": tree{"kafka": []any{tree{"topic": "a"}}}}}}}, "must validate one and only one schema", api.Admission{RefuseKafka: true}},
		{"ciliumnetworkpolicy", []string{"spec", "egress"}, []any{tree{"toPorts": []any{tree{"rules": tree{"l7proto": "a", "l7": []any{}}}}}}, "must validate one and only one schema", api.Admission{RefuseKafka: true}},
		{"ciliumbgpadvertisement", []string{"spec", "advertisements"}, []any{tree{"advertisementType": "PodCIDR", "service": tree{"addresses": []any{"ClusterIP"}}}}, "service field is not allowed", api.Admission{RefuseIdleServiceOptions: true}},
	} {
		object := examples(t)[wrong.example]
		set(object, wrong.value, wrong.path...)
		if errs := serverFor(t, object, api.Edition{}).create(t, object); len(errs) != 0 {
			t.Errorf("%s %v: %v", wrong.example, wrong.path, errs)
		}
		demand(t, serverFor(t, object, api.Edition{Admission: wrong.asked}).create(t, object), wrong.because)
	}
}

// TestServerKeepsRedirections demands that what a redirection is about never changes.
func TestServerKeepsRedirections(t *testing.T) {
	for _, change := range []struct {
		path    []string
		value   any
		because string
	}{
		{[]string{"spec", "redirectFrontend", "serviceMatcher", "serviceName"}, "other", "redirectFrontend is immutable"},
		{[]string{"spec", "redirectBackend", "toPorts"}, []any{}, "redirectBackend is immutable"},
		{[]string{"spec", "skipRedirectFromBackend"}, false, "skipRedirectFromBackend is immutable"},
	} {
		before := examples(t)["ciliumlocalredirectpolicy"]
		after := runtime.DeepCopyJSON(before)
		set(after, change.value, change.path...)
		demand(t, serverFor(t, before, api.Edition{}).update(t, after, before), change.because)
	}
}

// TestServerFixesMaskSizes demands that the mask size of a pool changes only where agents take that.
func TestServerFixesMaskSizes(t *testing.T) {
	before := examples(t)["ciliumpodippool"]
	after := runtime.DeepCopyJSON(before)
	set(after, int64(28), "spec", "ipv4", "maskSize")
	if errs := serverFor(t, before, api.Edition{}).update(t, after, before); len(errs) != 0 {
		t.Errorf("a change is refused: %v", errs)
	}
	demand(t, serverFor(t, before, newest.edition).update(t, after, before), "maskSize is immutable")
}

// TestServerWantsRules demands a rule of a policy where agents do.
func TestServerWantsRules(t *testing.T) {
	empty := tree{"apiVersion": "cilium.io/v2", "kind": "CiliumNetworkPolicy", "metadata": tree{"name": "a"}}
	if errs := serverFor(t, empty, api.Edition{}).create(t, empty); len(errs) != 0 {
		t.Errorf("an empty policy is refused: %v", errs)
	}
	demand(t, serverFor(t, empty, newest.edition).create(t, empty), "spec or specs must be provided")
}

// server is the part of an API server that judges objects of one kind and version.
type server struct {
	schema    *schema.Structural
	validator validation.SchemaValidator
}

func serverFor(t *testing.T, object tree, edition api.Edition) server {
	t.Helper()
	kind, known := api.KindNamed(object["kind"].(string))
	if !known {
		t.Fatalf("there is no kind %s", object["kind"])
	}
	_, version, _ := strings.Cut(object["apiVersion"].(string), "/")
	properties, err := apiextensions.GetSchemaForVersion(internalDefinition(t, kind, edition), version)
	if err != nil {
		t.Fatal(err)
	}
	structural, err := schema.NewStructural(properties.OpenAPIV3Schema)
	if err != nil {
		t.Fatal(err)
	}
	validator, _, err := validation.NewSchemaValidator(properties.OpenAPIV3Schema)
	if err != nil {
		t.Fatal(err)
	}
	return server{schema: structural, validator: validator}
}

func (s server) create(t *testing.T, object tree) field.ErrorList {
	return append(validation.ValidateCustomResource(nil, object, s.validator), s.rules(t, object, nil)...)
}

func (s server) update(t *testing.T, object, old tree) field.ErrorList {
	return append(validation.ValidateCustomResourceUpdate(nil, object, old, s.validator), s.rules(t, object, old)...)
}

func (s server) rules(t *testing.T, object, old tree) field.ErrorList {
	errs := listtype.ValidateListSetsAndMaps(nil, s.schema, object)
	validator := cel.NewValidator(s.schema, true, celconfig.PerCallLimit)
	var before any
	if old != nil {
		before = old
	}
	broken, _ := validator.Validate(t.Context(), nil, s.schema, object, before, celconfig.RuntimeCELCostBudget)
	return append(errs, broken...)
}

// internalDefinition returns a definition as an API server holds it.
func internalDefinition(t *testing.T, kind api.Kind, edition api.Edition) *apiextensions.CustomResourceDefinition {
	t.Helper()
	crd, err := kind.CRD(edition)
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	install.Install(scheme)
	scheme.Default(crd)
	internal := &apiextensions.CustomResourceDefinition{}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(crd, internal, nil); err != nil {
		t.Fatal(err)
	}
	return internal
}

// examples returns the objects in testdata/examples by the name of their file.
func examples(t *testing.T) map[string]tree {
	t.Helper()
	files, err := filepath.Glob("testdata/examples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	objects := map[string]tree{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		object := parse(t, file, text)
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		objects[name] = object
		if kind, _ := api.KindNamed(object["kind"].(string)); kind.Older != "" {
			older := runtime.DeepCopyJSON(object)
			older["apiVersion"] = kind.Resource.Group + "/" + kind.Older
			objects[name+"-"+kind.Older] = older
		}
	}
	return objects
}

// set changes what an object has at a path; nil removes it.
func set(object tree, value any, path ...string) {
	last := len(path) - 1
	for _, key := range path[:last] {
		object = object[key].(tree)
	}
	if value == nil {
		delete(object, path[last])
		return
	}
	object[path[last]] = value
}

func demand(t *testing.T, errs field.ErrorList, because string) {
	t.Helper()
	for _, err := range errs {
		if strings.Contains(err.Error(), because) {
			return
		}
	}
	t.Errorf("no error says %q; these are there: %v", because, errs)
}
