// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package alibabacloud

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/alibabacloud-go/tea/dara"
	"github.com/aliyun/credentials-go/credentials"

	"github.com/skep-operator/skep/resources/outside"
)

// Variables that Alibaba Cloud's own tools read.
const (
	envKeyID     = "ALIBABA_CLOUD_ACCESS_KEY_ID"
	envKeySecret = "ALIBABA_CLOUD_ACCESS_KEY_SECRET" //nolint:gosec // a name
	envToken     = "ALIBABA_CLOUD_SECURITY_TOKEN"    //nolint:gosec // a name
	envOIDCFile  = "ALIBABA_CLOUD_OIDC_TOKEN_FILE"   //nolint:gosec // a name
	envRole      = "ALIBABA_CLOUD_ROLE_ARN"
	envURI       = "ALIBABA_CLOUD_CREDENTIALS_URI" //nolint:gosec // a name
)

// source is where credentials come from. It is chosen once: another one would be another identity.
type source struct {
	name    string
	config  credentials.Config
	isFixed bool // it is in variables, and costs no call
}

// chooseSource is the keys of the environment; else the role of a service account; else the service that a variable names; else
// the role of the operator's instance.
func chooseSource() source {
	id, secret, note := os.Getenv(envKeyID), os.Getenv(envKeySecret), ""
	switch {
	case id != "" && secret != "" && os.Getenv(envToken) != "":
		return source{"the key " + id + " with the token of " + envToken, credentials.Config{
			Type: dara.String("sts"), AccessKeyId: &id, AccessKeySecret: &secret, SecurityToken: dara.String(os.Getenv(envToken)),
		}, true}
	case id != "" && secret != "":
		return source{"the key " + id + " (" + envKeyID + ")", credentials.Config{Type: dara.String("access_key"), AccessKeyId: &id, AccessKeySecret: &secret}, true}
	case id != "":
		note = "; " + envKeyID + " was not used: " + envKeySecret + " is empty"
	case secret != "":
		note = "; " + envKeySecret + " was not used: " + envKeyID + " is empty"
	}
	switch {
	case os.Getenv(envOIDCFile) != "":
		return source{"the role " + os.Getenv(envRole) + " of the service account (" + envOIDCFile + ")" + note, credentials.Config{Type: dara.String("oidc_role_arn")}, false}
	case os.Getenv(envURI) != "":
		return source{"the service of " + envURI + note, credentials.Config{Type: dara.String("credentials_uri")}, false}
	}
	return source{"the RAM role of the instance; " + envKeyID + " and " + envKeySecret + " are for keys" + note, credentials.Config{Type: dara.String("ecs_ram_role")}, false}
}

// identity is who the operator is at Alibaba Cloud. The SDK asks it for credentials that refresh has got.
type identity struct {
	credentials.Credential // nil: the SDK calls none of its other methods

	server *outside.Door
	source source
	// Of refresh, of which there is one at a time.
	from    credentials.Credential
	running chan outcome // of a request that its caller did not wait for

	mu    sync.Mutex
	model *credentials.CredentialModel // nil to be requested
	at    time.Time
}

type outcome struct {
	model *credentials.CredentialModel
	err   error
}

func newIdentity(server *outside.Door) *identity {
	return &identity{server: server, source: chooseSource()}
}

func (i *identity) name() string { return i.source.name }

// credentialAge is how long credentials are used before the SDK is asked for them again. It renews those that are about to expire.
const credentialAge = time.Minute

// GetCredential implements credentials.Credential.
func (i *identity) GetCredential() (*credentials.CredentialModel, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.model == nil {
		return nil, errors.New("there are no credentials")
	}
	return i.model, nil
}

// expire has the next call request credentials.
func (i *identity) expire() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.at = time.Time{}
}

func (i *identity) isFresh() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.model != nil && (i.source.isFixed || time.Since(i.at) < credentialAge)
}

// refresh gets credentials, if those that are known are too old. It is called by one caller at a time.
func (i *identity) refresh(ctx context.Context) error {
	if i.isFresh() {
		return nil
	}
	if i.source.isFixed {
		return i.set(i.get())
	}
	return i.server.ReadOperation(ctx, opCredential, func(ctx context.Context) error { return i.set(i.await(ctx)) })
}

const opCredential = "Credentials.Get"

func (i *identity) set(of outcome) error {
	if of.err != nil {
		return of.err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.model, i.at = of.model, time.Now()
	return nil
}

// await requests credentials until the context ends. The SDK knows no context, and has time-outs of its own.
func (i *identity) await(ctx context.Context) outcome {
	if i.running == nil {
		running := make(chan outcome, 1)
		i.running = running
		go func() { running <- i.get() }()
	}
	select {
	case of := <-i.running:
		i.running = nil
		return of
	case <-ctx.Done():
		return outcome{err: ctx.Err()}
	}
}

func (i *identity) get() (of outcome) {
	if i.from == nil {
		if i.from, of.err = credentials.NewCredential(&i.source.config); of.err != nil {
			return outcome{err: fmt.Errorf("using %s: %w", i.source.name, of.err)}
		}
	}
	if of.model, of.err = i.from.GetCredential(); of.err != nil {
		// What the SDK adds in braces is an answer, in which there may be secrets, ids and times.
		text, _, _ := strings.Cut(strings.SplitN(of.err.Error(), "\n", 2)[0], "{")
		of.err = fmt.Errorf("requesting credentials from %s: %s", i.source.name, strings.TrimSpace(text))
	}
	return of
}
