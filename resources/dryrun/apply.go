// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package dryrun

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/skep-operator/skep/resources/builtin"
)

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

func compareKeys(a, b Key) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// Target is what a request is about.
type Target struct {
	Resource    schema.GroupVersionResource
	Namespace   string // "" for cluster-scoped objects
	Name        string // "" for a collection
	Subresource string
}

func (t Target) place() place {
	return place{t.Resource, Key{Namespace: t.Namespace, Name: t.Name}}
}

// request is a mutating request.
type request struct {
	Target
	method      string
	contentType string
	body        []byte
}

// outcome is what a server would make of a request.
type outcome struct {
	verb  string
	state *unstructured.Unstructured // nil: gone
	code  int
}

// apply is what a server would make of a request for an object that is now as it
// is, nil for one that is not there. The error is a Status. hasStatus is whether
// the status is a subresource of its own.
func (r request) apply(is *unstructured.Unstructured, hasStatus bool, now time.Time) (outcome, error) {
	group := r.Resource.GroupResource()
	if r.method == http.MethodPost {
		return r.create(is, hasStatus, now)
	}
	if is == nil {
		return outcome{}, apierrors.NewNotFound(group, r.Name)
	}
	switch r.method {
	case http.MethodDelete:
		return r.remove(is, now)
	case http.MethodPut:
		wanted, err := r.decode()
		if err != nil {
			return outcome{}, err
		}
		if uid := wanted.GetUID(); uid != "" && uid != is.GetUID() {
			return outcome{}, apierrors.NewConflict(group, r.Name, fmt.Errorf("precondition failed: UID in precondition: %v, UID in object meta: %v", uid, is.GetUID()))
		}
		return r.update("update", is, wanted, hasStatus)
	case http.MethodPatch:
		wanted, err := r.patched(is)
		if err != nil {
			return outcome{}, err
		}
		return r.update("patch", is, wanted, hasStatus)
	}
	return outcome{}, apierrors.NewMethodNotSupported(group, r.method)
}

func (r request) decode() (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(r.body, &u.Object); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("a plan reads JSON only: %v", err))
	}
	return u, nil
}

func (r request) create(is *unstructured.Unstructured, hasStatus bool, now time.Time) (outcome, error) {
	if r.Subresource != "" {
		return outcome{}, apierrors.NewGenericServerResponse(http.StatusNotImplemented, "create", r.Resource.GroupResource(), r.Name,
			"a plan cannot tell what "+r.Subresource+" would do", 0, false)
	}
	if is != nil {
		return outcome{}, apierrors.NewAlreadyExists(r.Resource.GroupResource(), is.GetName())
	}
	u, err := r.decode()
	if err != nil {
		return outcome{}, err
	}
	if r.Namespace != "" {
		u.SetNamespace(r.Namespace)
	}
	u.SetCreationTimestamp(metav1.NewTime(now))
	u.SetGeneration(1)
	if hasStatus {
		delete(u.Object, "status")
	}
	if r.Resource == definitions {
		establish(u, now)
	}
	return outcome{"create", u, http.StatusCreated}, nil
}

// establish makes a definition serve at once.
func establish(u *unstructured.Unstructured, now time.Time) {
	names, _, _ := unstructured.NestedMap(u.Object, "spec", "names")
	versions, _, _ := unstructured.NestedSlice(u.Object, "spec", "versions")
	var stored []any
	for _, v := range versions {
		if version, _ := v.(map[string]any); version["storage"] == true {
			stored = append(stored, version["name"])
		}
	}
	condition := func(kind, reason string) any {
		return map[string]any{
			"type": kind, "status": "True", "reason": reason, "message": "as planned",
			"lastTransitionTime": now.UTC().Format(time.RFC3339),
		}
	}
	u.Object["status"] = map[string]any{
		"acceptedNames": names, "storedVersions": stored,
		"conditions": []any{condition("NamesAccepted", "NoConflicts"), condition("Established", "InitialNamesAccepted")},
	}
}

// update is what becomes of an object that is wanted so.
func (r request) update(verb string, is, wanted *unstructured.Unstructured, hasStatus bool) (outcome, error) {
	group := r.Resource.GroupResource()
	if v := wanted.GetResourceVersion(); v != "" && v != is.GetResourceVersion() {
		return outcome{}, apierrors.NewConflict(group, r.Name, fmt.Errorf("the object has been modified; please apply your changes to the latest version and try again"))
	}
	switch {
	case r.Subresource == "status" && hasStatus:
		status := wanted.Object["status"]
		wanted = is.DeepCopy()
		set(wanted, "status", status)
	case r.Subresource != "":
		return outcome{}, apierrors.NewGenericServerResponse(http.StatusNotImplemented, verb, group, r.Name,
			"a plan cannot tell what "+r.Subresource+" would do", 0, false)
	case hasStatus:
		set(wanted, "status", is.Object["status"])
	}
	for _, f := range []string{"uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "managedFields", "namespace", "name"} {
		keep(wanted, is, f)
	}
	if !reflect.DeepEqual(is.Object["spec"], wanted.Object["spec"]) {
		wanted.SetGeneration(is.GetGeneration() + 1)
	}
	if is.GetDeletionTimestamp() != nil && len(wanted.GetFinalizers()) == 0 {
		return outcome{verb, nil, http.StatusOK}, nil
	}
	return outcome{verb, wanted, http.StatusOK}, nil
}

func set(u *unstructured.Unstructured, name string, value any) {
	if value == nil {
		delete(u.Object, name)
		return
	}
	u.Object[name] = runtime.DeepCopyJSONValue(value)
}

// keep makes a field of the metadata what it is.
func keep(wanted, is *unstructured.Unstructured, name string) {
	value, there, _ := unstructured.NestedFieldCopy(is.Object, "metadata", name)
	if !there {
		unstructured.RemoveNestedField(wanted.Object, "metadata", name)
		return
	}
	_ = unstructured.SetNestedField(wanted.Object, value, "metadata", name) // metadata is a map: it has been read
}

// patched is an object after a patch.
func (r request) patched(is *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	before, err := encode(is.Object)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	var after []byte
	switch types.PatchType(r.contentType) {
	case types.JSONPatchType:
		var patch jsonpatch.Patch
		if patch, err = jsonpatch.DecodePatch(r.body); err == nil {
			after, err = patch.Apply(before)
		}
	case types.MergePatchType:
		after, err = jsonpatch.MergePatch(before, r.body)
	case types.StrategicMergePatchType:
		typed, unknown := builtin.Scheme.New(is.GroupVersionKind())
		if unknown != nil {
			return nil, apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, "patch", r.Resource.GroupResource(), r.Name,
				"a plan applies strategic merge patches to types of builtin.Scheme alone: send a merge patch, or add the type", 0, false)
		}
		after, err = strategicpatch.StrategicMergePatch(before, r.body, typed)
	default:
		return nil, apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, "patch", r.Resource.GroupResource(), r.Name,
			"a plan cannot apply patches of type "+r.contentType, 0, false)
	}
	if err != nil {
		return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "patch", r.Resource.GroupResource(), r.Name, err.Error(), 0, false)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(after); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return u, nil
}

// remove deletes an object, or marks it where finalizers hold it.
func (r request) remove(is *unstructured.Unstructured, now time.Time) (outcome, error) {
	var options metav1.DeleteOptions
	if len(r.body) > 0 {
		if err := json.Unmarshal(r.body, &options); err != nil {
			return outcome{}, apierrors.NewBadRequest(fmt.Sprintf("a plan reads JSON only: %v", err))
		}
	}
	if p := options.Preconditions; p != nil {
		if p.UID != nil && *p.UID != is.GetUID() {
			return outcome{}, apierrors.NewConflict(r.Resource.GroupResource(), r.Name,
				fmt.Errorf("precondition failed: UID in precondition: %v, UID in object meta: %v", *p.UID, is.GetUID()))
		}
		if p.ResourceVersion != nil && *p.ResourceVersion != is.GetResourceVersion() {
			return outcome{}, apierrors.NewConflict(r.Resource.GroupResource(), r.Name,
				fmt.Errorf("precondition failed: ResourceVersion in precondition: %v, ResourceVersion in object meta: %v", *p.ResourceVersion, is.GetResourceVersion()))
		}
	}
	if len(is.GetFinalizers()) == 0 {
		return outcome{"delete", nil, http.StatusOK}, nil
	}
	marked := is.DeepCopy()
	if marked.GetDeletionTimestamp() == nil {
		at := metav1.NewTime(now)
		marked.SetDeletionTimestamp(&at)
		grace := int64(0)
		marked.SetDeletionGracePeriodSeconds(&grace)
	}
	return outcome{"delete", marked, http.StatusOK}, nil
}

// changeAlike changes current as base was changed into changed.
func changeAlike(base, changed, current *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	var texts [3][]byte
	for i, u := range []*unstructured.Unstructured{base, changed, current} {
		if i < 2 { // what the plan gave itself is no change
			u = u.DeepCopy()
			for _, f := range []string{"resourceVersion", "generation", "managedFields"} {
				unstructured.RemoveNestedField(u.Object, "metadata", f)
			}
		}
		text, err := encode(u.Object)
		if err != nil {
			return nil, err
		}
		texts[i] = text
	}
	patch, err := jsonmergepatch.CreateThreeWayJSONMergePatch(texts[0], texts[1], texts[0])
	if err != nil {
		return nil, err
	}
	merged, err := jsonpatch.MergePatch(texts[2], patch)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{}
	return u, u.UnmarshalJSON(merged)
}
