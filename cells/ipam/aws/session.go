// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package aws

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/ec2rolecreds"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/smithy-go/logging"
	"golang.org/x/sync/semaphore"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/outside"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

// session is the operator's way to EC2 and to the metadata of its own instance. It begins with the first call: what these
// servers do not answer then is asked again by the next call.
type session struct {
	sessionParams
	imds     *outside.Door // of the metadata of the instance
	throttle outside.Throttle

	begins *semaphore.Weighted // guards begun: it is begun by one call at a time
	begun  *begun
	http   *http.Transport
}

type sessionParams struct {
	cell.In

	Config  Config
	Cluster cluster.Config
	EC2     *outside.Door
	Scope   outside.Scope
	Log     *slog.Logger
}

// begun is what is known once the session has begun.
type begun struct {
	client   *ec2.Client
	sdk      sdk.Config
	endpoint string            // of EC2, "" for that of the region
	tags     map[string]string // of interfaces that this cluster creates, and deletes
}

func newSession(p sessionParams) *session {
	return &session{sessionParams: p, imds: outside.New(p.Scope, "imds", outside.Limits{}), begins: semaphore.NewWeighted(1)}
}

// connections closes what is idle at the end of the term.
func (s *session) connections() lifecycle.Hook {
	return lifecycle.Funcs{OnStop: func(ctx context.Context) error {
		if err := s.begins.Acquire(ctx, 1); err != nil {
			return err
		}
		defer s.begins.Release(1)
		if s.http != nil {
			s.http.CloseIdleConnections()
		}
		return nil
	}}
}

// begin returns the session's client, which it makes at the first call.
func (s *session) begin(ctx context.Context) (*begun, error) {
	if err := s.begins.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer s.begins.Release(1)
	if s.begun != nil {
		return s.begun, nil
	}
	loaded, err := s.load(ctx)
	if err != nil {
		return nil, err
	}
	self, err := s.identify(ctx, loaded)
	if err != nil {
		return nil, err
	}
	loaded.Region = self.Region
	b := &begun{sdk: loaded, endpoint: s.Config.EC2APIEndpoint}
	b.client = b.newClient()
	if b.tags, err = s.ownTags(ctx, b.client, self.InstanceID); err != nil {
		return nil, err
	}
	s.begun = b
	s.Log.Info("using EC2", "region", self.Region, "instance", self.InstanceID, "garbageCollectionTags", b.tags)
	return b, nil
}

func (b *begun) newClient(options ...func(*ec2.Options)) *ec2.Client {
	return ec2.NewFromConfig(b.sdk, append(options, func(o *ec2.Options) {
		o.Retryer = sdk.NopRetryer{} // calls are repeated by the work queues, after a look at what they did
		if b.endpoint != "" {
			o.BaseEndpoint = sdk.String("https://" + b.endpoint)
		}
	})...)
}

// in is the client of a region; "" is the operator's.
func (b *begun) in(region string) (*ec2.Client, error) {
	if region == "" || region == b.sdk.Region {
		return b.client, nil
	}
	if b.endpoint != "" {
		return nil, fmt.Errorf("region %s cannot be reached: --ec2-api-endpoint is %s, which serves %s", region, b.endpoint, b.sdk.Region)
	}
	return b.newClient(func(o *ec2.Options) { o.Region = region }), nil
}

// load finds credentials where AWS' own tools do. Those of the instance come through the door, too.
func (s *session) load(ctx context.Context) (sdk.Config, error) {
	roles := func(o *ec2rolecreds.Options) {
		o.Client = metadata{imds.New(imds.Options{ClientEnableState: imds.ClientDefaultEnableState}), s.imds}
	}
	loaded, err := config.LoadDefaultConfig(ctx, config.WithEC2RoleCredentialOptions(roles), config.WithLogger(logging.LoggerFunc(func(_ logging.Classification, format string, args ...any) {
		s.Log.Debug("message of AWS' SDK", "message", fmt.Sprintf(format, args...))
	})))
	if err != nil {
		return loaded, fmt.Errorf("loading the configuration of AWS' SDK: check the variables AWS_… and the files they name: %w", err)
	}
	s.http = http.DefaultTransport.(*http.Transport).Clone()
	if of, ok := loaded.HTTPClient.(*awshttp.BuildableClient); ok {
		s.http = of.GetTransport() // a copy, with the authorities of AWS_CA_BUNDLE
	}
	loaded.HTTPClient = &http.Client{Transport: outside.Bounded(ownBodies{s.http})}
	return loaded, nil
}

// ownBodies sends copies of the bodies of requests, which are small. AWS' SDK closes a body once it has the head of the answer. If the
// transport has not come to the end of the body until then, it closes the connection, and the rest of the answer is lost.
type ownBodies struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (o ownBodies) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body == nil || req.Body == http.NoBody {
		return o.next.RoundTrip(req)
	}
	body, err := io.ReadAll(req.Body)
	if err = errors.Join(err, req.Body.Close()); err != nil {
		return nil, err
	}
	own := req.WithContext(req.Context())
	own.Body = io.NopCloser(bytes.NewReader(body))
	return o.next.RoundTrip(own)
}

// identity is who the operator's instance is.
type identity struct{ Region, InstanceID string }

// metadataTimeout bounds a call to the metadata service, which is on the same host.
const metadataTimeout = 5 * time.Second

// identify reads the instance identity document. Without it a region that AWS' own variables and files name is used.
func (s *session) identify(ctx context.Context, loaded sdk.Config) (identity, error) {
	var document *imds.GetInstanceIdentityDocumentOutput
	err := s.imds.ReadOperation(ctx, "GetInstanceIdentityDocument", func(ctx context.Context) (err error) {
		ctx, cancel := context.WithTimeout(ctx, metadataTimeout)
		defer cancel()
		document, err = imds.NewFromConfig(loaded).GetInstanceIdentityDocument(ctx, nil)
		return err
	})
	switch {
	case err == nil && document.Region != "":
		return identity{document.Region, document.InstanceID}, nil
	case ctx.Err() != nil:
		return identity{}, ctx.Err()
	case loaded.Region != "":
		s.Log.Warn("reading the instance identity document failed, using the configured region", "region", loaded.Region, "error", err)
		return identity{Region: loaded.Region}, nil
	case err == nil:
		err = errors.New("it has no region")
	}
	return identity{}, fmt.Errorf("reading the instance identity document: let the operator reach the instance metadata service (hop limit 2, or its host network), or set AWS_REGION: %w", err)
}

// metadata is the metadata service behind its door.
type metadata struct {
	client *imds.Client
	imds   *outside.Door
}

// GetMetadata implements ec2rolecreds.GetMetadataAPIClient.
func (m metadata) GetMetadata(ctx context.Context, in *imds.GetMetadataInput, opts ...func(*imds.Options)) (out *imds.GetMetadataOutput, err error) {
	err = m.imds.ReadOperation(ctx, "GetMetadata", func(ctx context.Context) (err error) {
		out, err = m.client.GetMetadata(ctx, in, opts...)
		return err
	})
	return out, err
}

// Tags of interfaces that are this cluster's.
const (
	managedTag = "io.cilium/cilium-managed"
	clusterTag = "io.cilium/cluster-name"
	eksTag     = "aws:eks:cluster-name"
)

// ownTags are the tags by which interfaces of this cluster are found.
func (s *session) ownTags(ctx context.Context, client *ec2.Client, instance string) (map[string]string, error) {
	if len(s.Config.ENIGCTags) > 0 {
		return s.Config.ENIGCTags, nil
	}
	name := s.Cluster.ClusterName
	if name == cluster.DefaultConfig.ClusterName && instance != "" {
		found, err := s.clusterOf(ctx, client, instance)
		switch {
		case isDenied(err):
			s.Log.Info("reading the tags of the own instance is denied, so that the name of an EKS cluster is not known", "error", err)
		case err != nil:
			return nil, err
		case found != "":
			name = found
		}
	}
	if name == cluster.DefaultConfig.ClusterName && s.Config.ENIGCInterval > 0 {
		s.Log.Info("interfaces of all clusters of the account with this name are garbage collected: set --cluster-name or --eni-gc-tags", "clusterName", name)
	}
	return map[string]string{managedTag: "true", clusterTag: name}, nil
}

// tagsOf are those of an interface that is created.
func (b *begun) tagsOf(c Config) map[string]string {
	tags := maps.Clone(c.ENITags)
	if tags == nil {
		tags = map[string]string{}
	}
	maps.Copy(tags, b.tags)
	return tags
}
