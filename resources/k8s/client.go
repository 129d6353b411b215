// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"
)

// Client is a module's way to the Kubernetes API. It is safe for concurrent
// use. Writes fail with leading.ErrFenced once the term they belong to is over, and
// with ErrReadOnly for modules outside a term.
//
//   - A response is believed only if it shows what was meant: the object of that
//     kind, name and uid, with the change. Others are InvalidResponseError and
//     NotStoredError.
//   - Each method sends a request once. The pause that the API server asks for is in
//     the error, see PauseAfter.
//   - A change that another writer undoes again and again is a ContentionError until
//     its pause is over; a permission that the role lacks is a PermissionError.
type Client interface {
	// RESTConfig is for making other clients. What they send passes the
	// module's door, too. The config is the caller's.
	RESTConfig() *rest.Config
	// Get reads an object. Where the role forbids GET, it is listed by name. With a Ref of the
	// status, a large object has its identity, its metadata and its status alone.
	Get(ctx context.Context, ref Ref) (*unstructured.Unstructured, error)
	// Create makes an object and returns it as stored, with a NotStoredError, too.
	Create(ctx context.Context, resource schema.GroupVersionResource, obj runtime.Object) (*unstructured.Unstructured, error)
	// Modify reads an object, lets edit change it, and writes it back if that
	// made a difference. Fields that edit does not set stay as they are. On a
	// conflict, it reads and edits again. It returns the object as stored, and
	// whether it was written. Where ref is of a status, both have of a large object
	// its identity, its metadata and its status alone.
	Modify(ctx context.Context, ref Ref, edit func(*unstructured.Unstructured) error) (stored *unstructured.Unstructured, written bool, err error)
	// Update puts an object in the place of the stored one that has its
	// resourceVersion, and returns it as stored. It is for kinds of which the
	// module alone writes every field; for others there is Modify.
	Update(ctx context.Context, resource schema.GroupVersionResource, obj runtime.Object) (*unstructured.Unstructured, error)
	// Patch applies a patch to an object that the caller has not read but in a cache, and
	// returns the object as stored. A list is a JSON patch, which begins with a test of what
	// it relies on; an object is a strategic merge patch, for built-in kinds. sets are the
	// values that the patch sets; without them the caller checks the response itself.
	Patch(ctx context.Context, ref Ref, patch []byte, sets ...PatchedValue) (*unstructured.Unstructured, error)
	// Delete deletes an object that is still the one meant. Where the role allows
	// deletecollection instead of delete, that is used for the one name.
	Delete(ctx context.Context, ref Ref, only Preconditions) error
}

// Ref names an object, or a subresource of one.
type Ref struct {
	Resource    schema.GroupVersionResource
	Namespace   string // "" for cluster-scoped objects
	Name        string
	Subresource string // "" or "status"
	// UID, if set, is a precondition of Get, Modify and Delete: another object of that
	// name is NotFound.
	UID types.UID
}

// byName is the reference without the precondition.
func (r Ref) byName() Ref {
	r.UID = ""
	return r
}

func (r Ref) String() string {
	text := r.Resource.GroupResource().String() + " " + r.Name
	if r.Namespace != "" {
		text = r.Resource.GroupResource().String() + " " + r.Namespace + "/" + r.Name
	}
	if r.Subresource != "" {
		text += " (" + r.Subresource + ")"
	}
	return text
}

// Preconditions say which object is meant by a name. At least the UID is set, here or
// in the Ref.
type Preconditions struct {
	UID             types.UID
	ResourceVersion string // "" for any
	// Propagation is what becomes of its dependents, "" for the default of its kind.
	Propagation metav1.DeletionPropagation
}

// client implements Client.
type client struct {
	transport   *moduleTransport
	permissions *Permissions
	contention  *contentionReport
	rest        rest.Interface
}

func newClient(transport *moduleTransport, p *Permissions, contention *contentionReport) (*client, error) {
	c := &client{transport: transport, permissions: p, contention: contention}
	var err error
	c.rest, err = newREST(c.RESTConfig())
	return c, err
}

func (c *client) RESTConfig() *rest.Config {
	u := c.transport.servers.url()
	return &rest.Config{
		Host:      u.String(),
		Transport: c.transport,
		QPS:       -1, // the door limits
		UserAgent: c.transport.agent,
		// Servers warn about deprecations: of use to developers only.
		WarningHandler: warnings{c.transport.log},
	}
}

func (c *client) Get(ctx context.Context, ref Ref) (*unstructured.Unstructured, error) {
	if err := checkNames(ref); err != nil {
		return nil, err // before it may be part of a field selector
	}
	ctx, release := WithTurn(ctx) // until it is decoded
	defer release()
	if remainderIn(ctx) == nil {
		ctx = withRemainder(ctx, ref)
	}
	obj, err := c.get(ctx, ref.byName())
	if err == nil && ref.UID != "" && obj.GetUID() != ref.UID {
		return nil, replaced(ref, obj.GetUID())
	}
	return obj, err
}

func (c *client) get(ctx context.Context, ref Ref) (*unstructured.Unstructured, error) {
	ref.Subresource = "" // the object has it
	canList := c.transport.asked.declares("list", ref)
	if !canList || !c.permissions.Denies("get", ref) {
		obj, err := c.getByName(ctx, ref, canList)
		if !canList || !apierrors.IsForbidden(err) {
			return obj, err
		}
	}
	obj, err := c.getByList(ctx, ref)
	if apierrors.IsForbidden(err) { // the role may have changed; and the object's own error says more
		return c.getByName(ctx, ref, false)
	}
	return obj, err
}

// getByName reads an object. A tentative request is refused where the role may allow
// another one.
func (c *client) getByName(ctx context.Context, ref Ref, tentative bool) (*unstructured.Unstructured, error) {
	resp, err := c.send(ctx, request{method: http.MethodGet, ref: ref, tentative: tentative})
	if err != nil {
		return nil, err
	}
	return expected{method: http.MethodGet, ref: ref}.object(resp)
}

// getByList reads an object with the permission to list.
func (c *client) getByList(ctx context.Context, ref Ref) (*unstructured.Unstructured, error) {
	all := ref
	all.Name = ""
	resp, err := c.send(ctx, request{method: http.MethodGet, ref: all, fields: "metadata.name=" + ref.Name, tentative: true})
	if err != nil {
		return nil, err
	}
	is := expected{method: http.MethodGet, ref: all}
	items, err := is.list(resp)
	if err != nil {
		return nil, err
	}
	if len(items) == 0 {
		return nil, apierrors.NewNotFound(ref.Resource.GroupResource(), ref.Name)
	}
	is.ref = ref
	if what := is.differs(&items[0]); what != "" {
		return nil, is.invalid(resp.code, "a list with %s", what)
	}
	return &items[0], nil
}

func (c *client) Create(ctx context.Context, resource schema.GroupVersionResource, obj runtime.Object) (*unstructured.Unstructured, error) {
	ctx, release := WithTurn(ctx)
	defer release()
	sent, body, err := encode(ctx, obj)
	if err != nil {
		return nil, err
	}
	at := Ref{Resource: resource, Namespace: sent.GetNamespace()}
	is := expected{method: http.MethodPost, ref: at, kind: sent.GetKind(), generate: sent.GetGenerateName()}
	if is.ref.Name = sent.GetName(); is.ref.Name != "" {
		is.generate = ""
	}
	if sent, body, err = c.served(ctx, at, nil, sent, body); err != nil {
		return nil, err
	}
	again := c.contention.creation(is.ref, sent)
	if err := again.await(); err != nil {
		return nil, err
	}
	return c.write(ctx, request{method: http.MethodPost, ref: at, body: body}, is, writingOf(again, nil, sent))
}

func (c *client) Update(ctx context.Context, resource schema.GroupVersionResource, obj runtime.Object) (*unstructured.Unstructured, error) {
	ctx, release := WithTurn(ctx)
	defer release()
	sent, body, err := encode(ctx, obj)
	if err != nil {
		return nil, err
	}
	ref := Ref{Resource: resource, Namespace: sent.GetNamespace(), Name: sent.GetName()}
	if sent.GetResourceVersion() == "" {
		return nil, fmt.Errorf("updating %s: without a resourceVersion it could overwrite the change of another writer", ref)
	}
	if sent, body, err = c.served(ctx, ref, nil, sent, body); err != nil {
		return nil, err
	}
	again := c.contention.replacement(ref, sent)
	if err := again.await(); err != nil {
		return nil, err
	}
	w := writingOf(again, nil, sent)
	w.whole = true
	return c.put(ctx, ref, sent, body, w)
}

// served is what is sent without what the installed definition is known to lack. before is nil if that was not read.
func (c *client) served(ctx context.Context, ref Ref, before map[string]any, sent *unstructured.Unstructured, body []byte) (*unstructured.Unstructured, []byte, error) {
	version := cmp.Or(c.transport.served.inUse(ref.Resource.GroupResource()), ref.Resource.Version)
	kind := schema.GroupVersionKind{Group: ref.Resource.Group, Version: version, Kind: sent.GetKind()}
	content, less := c.transport.unserved.without(ctx, kind, before, sent.Object)
	if !less {
		return sent, body, nil
	}
	body, err := json.Marshal(content)
	if err != nil {
		return nil, nil, fmt.Errorf("encoding %s: %w", ref, err)
	}
	return &unstructured.Unstructured{Object: content}, body, nil
}

// encode returns an object as it is on the wire, read and written. One that needs much memory waits for its turn before it is read.
func encode(ctx context.Context, obj runtime.Object) (*unstructured.Unstructured, []byte, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, nil, fmt.Errorf("encoding %T: %w", obj, err)
	}
	body, err := json.Marshal(content)
	if err != nil {
		return nil, nil, fmt.Errorf("encoding %T: %w", obj, err)
	}
	if err := awaitTurn(ctx, body); err != nil {
		return nil, nil, err
	}
	sent := &unstructured.Unstructured{}
	return sent, body, utiljson.Unmarshal(body, &sent.Object)
}

// writing is what a write is about, beside its request.
type writing struct {
	again   *recurrence
	before  map[string]any // the object that was read, nil for none
	sent    map[string]any // nil for a patch
	changes []fieldChange
	whole   bool           // the changes are all that there is to be
	sets    []PatchedValue // of a patch, in place of changes
}

// writingOf is a write of an object in place of what was read.
func writingOf(again *recurrence, before map[string]any, sent *unstructured.Unstructured) writing {
	return writing{again: again, before: before, sent: sent.Object, changes: changesOf(before, sent.Object)}
}

// shownBy returns the first of the changes that a stored object does not show.
func (w writing) shownBy(stored *unstructured.Unstructured, subresource string) (field string, ok bool) {
	for _, v := range w.sets {
		if !v.shownBy(stored) {
			return v.Field, false
		}
	}
	return shows(stored.Object, w.changes, subresource, w.whole)
}

func (c *client) put(ctx context.Context, ref Ref, sent *unstructured.Unstructured, body []byte, w writing) (*unstructured.Unstructured, error) {
	change := churnKey{ref: ref.byName()}
	if err := c.contention.mayChange(ctx, change); err != nil {
		return nil, err
	}
	is := expected{method: http.MethodPut, ref: ref, kind: sent.GetKind(), uid: sent.GetUID()}
	is.least, _ = parseRevision(sent.GetResourceVersion())
	is.ref.Subresource = ""
	stored, err := c.write(ctx, request{method: http.MethodPut, ref: ref, body: body}, is, w)
	if err == nil {
		c.contention.hasChanged(ctx, change)
	}
	if ref.Subresource != "" && IsNotFound(err, ref) {
		return nil, c.withoutSubresource(ctx, ref, err)
	}
	return stored, err
}

// withoutSubresource tells an object that is gone from one whose kind has no such
// subresource: the API server answers the same.
func (c *client) withoutSubresource(ctx context.Context, ref Ref, err error) error {
	if _, getErr := c.Get(ctx, ref); getErr != nil {
		return getErr
	}
	return fmt.Errorf("%s exists, and its kind has no subresource %s: bring its definition up to date (%v)", ref, ref.Subresource, err)
}

// write sends a write, checks its response, and records its result.
func (c *client) write(ctx context.Context, r request, is expected, w writing) (*unstructured.Unstructured, error) {
	if r.contentType == "" {
		r.contentType = runtime.ContentTypeJSON
	}
	ctx, result := withWriteResult(ctx)
	stored, err := c.sendAndCheck(ctx, r, is, w)
	result.complete(c.transport.guardedTransport, stored, err)
	if err == nil {
		observeWrite(ctx, is.ref, stored)
	}
	return stored, err
}

func (c *client) sendAndCheck(ctx context.Context, r request, is expected, w writing) (*unstructured.Unstructured, error) {
	resp, err := c.send(ctx, r)
	if err != nil {
		if !Refused(err) {
			w.again.lost()
		}
		return nil, err
	}
	stored, err := is.object(resp)
	if err != nil {
		w.again.lost()
		return nil, err
	}
	if field, ok := c.shows(ctx, stored, r.ref, w); !ok {
		w.again.dropped(stored, field)
		return stored, &NotStoredError{is.ref, field}
	}
	w.again.stored(stored)
	return stored, nil
}

// shows returns the first of the changes that a stored object does not show, but for those of fields that the installed
// definition lacks.
func (c *client) shows(ctx context.Context, stored *unstructured.Unstructured, ref Ref, w writing) (field string, ok bool) {
	field, ok = w.shownBy(stored, ref.Subresource)
	if ok || w.sent == nil {
		return field, ok
	}
	w.sent = c.transport.unserved.storable(ctx, stored.GroupVersionKind(), w.sent)
	w.changes = changesOf(w.before, w.sent)
	return w.shownBy(stored, ref.Subresource)
}

// conflicts is how often Modify starts over before it leaves it to its caller.
const conflicts = 5

func (c *client) Modify(ctx context.Context, ref Ref, edit func(*unstructured.Unstructured) error) (*unstructured.Unstructured, bool, error) {
	ctx, release := WithTurn(withRemainder(ctx, ref))
	defer release()
	for try := 1; ; try++ {
		current, err := c.Get(ctx, ref)
		if err != nil {
			return nil, false, err
		}
		ref := ref.byName()
		sent, body, err := edited(ctx, current, edit)
		if err == nil {
			sent, body, err = c.served(ctx, ref, current.Object, sent, body)
		}
		if err != nil {
			return nil, false, err
		}
		if sameJSON(current.Object, sent.Object) {
			return current, false, nil
		}
		w := writingOf(nil, current.Object, sent)
		w.again = c.contention.modification(ctx, ref, current, w.changes)
		if err := w.again.await(); err != nil {
			return nil, false, err
		}
		stored, err := c.put(ctx, ref, sent, body, w)
		if IsConflict(err, ref) && try < conflicts {
			continue
		}
		return stored, err == nil, err
	}
}

// edited is an object after an edit, which leaves its identity and resourceVersion.
func edited(ctx context.Context, current *unstructured.Unstructured, edit func(*unstructured.Unstructured) error) (*unstructured.Unstructured, []byte, error) {
	changed := current.DeepCopy()
	if err := edit(changed); err != nil {
		return nil, nil, err
	}
	changed.SetResourceVersion(current.GetResourceVersion())
	return encode(ctx, changed)
}

func (c *client) Delete(ctx context.Context, ref Ref, only Preconditions) error {
	only.UID = cmp.Or(only.UID, ref.UID)
	ref = ref.byName()
	if only.UID == "" {
		return fmt.Errorf("deleting %s: a precondition without UID could hit another object of that name", ref)
	}
	change := churnKey{ref: ref, deletes: true}
	if err := c.contention.mayChange(ctx, change); err != nil {
		return err
	}
	options := metav1.DeleteOptions{
		TypeMeta:      metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"},
		Preconditions: &metav1.Preconditions{UID: &only.UID},
	}
	if only.Propagation != "" {
		options.PropagationPolicy = &only.Propagation
	}
	if only.ResourceVersion != "" {
		options.Preconditions.ResourceVersion = &only.ResourceVersion
	}
	body, err := json.Marshal(options)
	if err != nil {
		return err
	}
	ctx, release := WithTurn(ctx) // of an object that a finalizer holds the answer is what it has
	defer release()
	ctx, result := withWriteResult(ctx)
	uid, left, err := c.sendDelete(ctx, ref, only.UID, body)
	result.complete(c.transport.guardedTransport, nil, err)
	if err == nil {
		c.contention.deletion(ref)
		c.contention.hasChanged(ctx, change)
		observeDeletion(ctx, ref, uid, left)
	}
	return err
}

// sendDelete sends the request, and reads the response. Where the role allows deletecollection instead of delete, the
// object is deleted as the one of its name in the collection: the response does not tell whether it is gone then, and the
// uid that is returned is "".
func (c *client) sendDelete(ctx context.Context, ref Ref, uid types.UID, body []byte) (deleted types.UID, left *unstructured.Unstructured, err error) {
	if err := checkNames(ref); err != nil {
		return "", nil, err
	}
	collection := ref
	collection.Name = ""
	is := expected{method: http.MethodDelete, ref: ref, uid: uid}
	r := request{method: http.MethodDelete, ref: ref, contentType: runtime.ContentTypeJSON, body: body, headOnly: true}
	if !c.permissions.Denies("delete", ref) || !c.permissions.Allows("deletecollection", collection) {
		resp, err := c.send(ctx, r)
		if err != nil {
			return "", nil, err
		}
		left, err = is.deletion(resp)
		return uid, left, err
	}
	r.ref, r.fields = collection, "metadata.name="+ref.Name
	resp, err := c.send(ctx, r)
	if err != nil {
		return "", nil, err
	}
	all, err := is.list(resp)
	switch {
	case err != nil:
		return "", nil, err
	case len(all) == 0:
		return "", nil, apierrors.NewNotFound(ref.Resource.GroupResource(), ref.Name)
	}
	if what := is.differs(&all[0]); what != "" {
		return "", nil, is.invalid(resp.code, "a list with %s", what)
	}
	return "", nil, nil
}

// warnings logs what the API server warns about.
type warnings struct{ log *slog.Logger }

func (w warnings) HandleWarningHeader(code int, _ string, text string) {
	if code == 299 && text != "" {
		w.log.Debug("the API server warns", "warning", text)
	}
}
