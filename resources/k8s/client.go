// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// Client is a module's way to the Kubernetes API. It is safe for concurrent
// use. Writes fail with ErrFenced once the term they belong to is over, and
// with ErrReadOnly for modules outside a term.
type Client interface {
	// RESTConfig is for making other clients. What they send passes the
	// module's door, too. The config is the caller's.
	RESTConfig() *rest.Config
	// Get reads an object. Where the role forbids GET, it is listed by name.
	Get(ctx context.Context, ref Ref) (*unstructured.Unstructured, error)
	// Create makes an object and returns it as stored.
	Create(ctx context.Context, resource schema.GroupVersionResource, obj runtime.Object) (*unstructured.Unstructured, error)
	// Modify reads an object, lets edit change it, and writes it back if that
	// made a difference. Fields that edit does not know stay as they are. When
	// somebody else wrote in between, it reads and edits again. It returns the
	// object as stored, and whether it was written.
	Modify(ctx context.Context, ref Ref, edit func(*unstructured.Unstructured) error) (stored *unstructured.Unstructured, written bool, err error)
	// Update puts an object in the place of the stored one that has its
	// resourceVersion, and returns it as stored. It is for kinds of which the
	// module alone writes every field; for others there is Modify.
	Update(ctx context.Context, resource schema.GroupVersionResource, obj runtime.Object) (*unstructured.Unstructured, error)
	// Delete deletes an object that is still the one meant.
	Delete(ctx context.Context, ref Ref, only Preconditions) error
}

// Ref names an object, or a subresource of one.
type Ref struct {
	Resource    schema.GroupVersionResource
	Namespace   string // "" for cluster-scoped objects
	Name        string
	Subresource string // "" or "status"
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

// Preconditions say which object is meant by a name. At least the UID is set.
type Preconditions struct {
	UID             types.UID
	ResourceVersion string // "" for any
}

// client implements Client.
type client struct {
	door        *moduleDoor
	permissions *Permissions
	dynamic     dynamic.Interface
}

func newClient(door *moduleDoor, p *Permissions) (*client, error) {
	c := &client{door: door, permissions: p}
	var err error
	c.dynamic, err = dynamic.NewForConfig(c.RESTConfig())
	return c, err
}

func (c *client) RESTConfig() *rest.Config {
	u := c.door.servers.url()
	return &rest.Config{
		Host:      u.String(),
		Transport: c.door,
		QPS:       -1, // the door limits
		UserAgent: c.door.agent,
		// Servers warn about deprecations: of use to developers only.
		WarningHandler: warnings{c.door.log},
	}
}

func (c *client) resource(r Ref) dynamic.ResourceInterface {
	resource := c.dynamic.Resource(r.Resource)
	if r.Namespace != "" {
		return resource.Namespace(r.Namespace)
	}
	return resource
}

func (c *client) Get(ctx context.Context, ref Ref) (*unstructured.Unstructured, error) {
	ref.Subresource = "" // the object has it
	if !c.permissions.Denies("get", ref) {
		obj, err := c.resource(ref).Get(ctx, ref.Name, metav1.GetOptions{})
		if !apierrors.IsForbidden(err) {
			return obj, err
		}
	}
	obj, err := c.getByList(ctx, ref)
	if apierrors.IsForbidden(err) { // the role may have changed; and the object's own error says more
		return c.resource(ref).Get(ctx, ref.Name, metav1.GetOptions{})
	}
	return obj, err
}

// getByList reads an object with the permission to list.
func (c *client) getByList(ctx context.Context, ref Ref) (*unstructured.Unstructured, error) {
	list, err := c.resource(ref).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + ref.Name, Limit: 1})
	if err != nil {
		return nil, err
	}
	if len(list.Items) == 0 {
		return nil, apierrors.NewNotFound(ref.Resource.GroupResource(), ref.Name)
	}
	return &list.Items[0], nil
}

func (c *client) Create(ctx context.Context, resource schema.GroupVersionResource, obj runtime.Object) (*unstructured.Unstructured, error) {
	u, err := generic(obj)
	if err != nil {
		return nil, err
	}
	ctx, receipt := withReceipt(ctx)
	stored, err := c.resource(Ref{Resource: resource, Namespace: u.GetNamespace()}).Create(ctx, u, metav1.CreateOptions{})
	receipt.sign(c.door.door, stored, err)
	return stored, err
}

func (c *client) Update(ctx context.Context, resource schema.GroupVersionResource, obj runtime.Object) (*unstructured.Unstructured, error) {
	u, err := generic(obj)
	if err != nil {
		return nil, err
	}
	ref := Ref{Resource: resource, Namespace: u.GetNamespace(), Name: u.GetName()}
	if u.GetResourceVersion() == "" {
		return nil, fmt.Errorf("updating %s: without a resourceVersion it could undo what somebody else wrote", ref)
	}
	return c.put(ctx, ref, u)
}

func generic(obj runtime.Object) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, fmt.Errorf("encoding %T: %w", obj, err)
	}
	return &unstructured.Unstructured{Object: content}, nil
}

func (c *client) put(ctx context.Context, ref Ref, obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	var subresources []string
	if ref.Subresource != "" {
		subresources = []string{ref.Subresource}
	}
	ctx, receipt := withReceipt(ctx)
	stored, err := c.resource(ref).Update(ctx, obj, metav1.UpdateOptions{}, subresources...)
	receipt.sign(c.door.door, stored, err)
	return stored, err
}

// conflicts is how often Modify starts over before it leaves it to its caller.
const conflicts = 5

func (c *client) Modify(ctx context.Context, ref Ref, edit func(*unstructured.Unstructured) error) (*unstructured.Unstructured, bool, error) {
	for try := 1; ; try++ {
		current, err := c.Get(ctx, ref)
		if err != nil {
			return nil, false, err
		}
		changed := current.DeepCopy()
		if err := edit(changed); err != nil {
			return nil, false, err
		}
		changed.SetResourceVersion(current.GetResourceVersion()) // whatever edit did to it
		if same, err := sameJSON(current, changed); same || err != nil {
			return current, false, err
		}
		stored, err := c.put(ctx, ref, changed)
		if apierrors.IsConflict(err) && try < conflicts {
			continue
		}
		return stored, err == nil, err
	}
}

// sameJSON reports whether two objects are the same on the wire, whatever Go
// types their numbers and lists have.
func sameJSON(a, b *unstructured.Unstructured) (bool, error) {
	before, err := json.Marshal(a.Object)
	if err != nil {
		return false, err
	}
	after, err := json.Marshal(b.Object)
	if err != nil {
		return false, fmt.Errorf("encoding %s %s: %w", b.GetKind(), b.GetName(), err)
	}
	return bytes.Equal(before, after), nil
}

func (c *client) Delete(ctx context.Context, ref Ref, only Preconditions) error {
	if only.UID == "" {
		return fmt.Errorf("deleting %s: a precondition without UID could hit another object of that name", ref)
	}
	preconditions := &metav1.Preconditions{UID: &only.UID}
	if only.ResourceVersion != "" {
		preconditions.ResourceVersion = &only.ResourceVersion
	}
	return c.resource(ref).Delete(ctx, ref.Name, metav1.DeleteOptions{Preconditions: preconditions})
}

// warnings logs what the API server warns about.
type warnings struct{ log *slog.Logger }

func (w warnings) HandleWarningHeader(code int, _ string, text string) {
	if code == 299 && text != "" {
		w.log.Debug("the API server warns", "warning", text)
	}
}
