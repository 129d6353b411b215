// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package alibabacloud

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/skep-operator/skep/resources/outside"
)

const (
	metadataHost    = "100.100.100.200"
	metadataTimeout = 10 * time.Second
	// Of the mode of the metadata service in which it wants a token.
	tokenAge       = "X-aliyun-ecs-metadata-token-ttl-seconds"
	tokenHeader    = "X-aliyun-ecs-metadata-token"
	tokenSeconds   = "60"
	maxMetadata    = 4 << 10
	opMetadata     = "InstanceMetadata.Get"
	opMetadataAuth = "InstanceMetadata.GetToken"
)

// metadata reads a field of the metadata of the operator's own instance.
func (s *session) metadata(ctx context.Context, field string) (string, error) {
	value, status, err := s.askMetadata(ctx, http.MethodGet, "meta-data/"+field, opMetadata, nil)
	if status == http.StatusForbidden {
		token, _, tokenErr := s.askMetadata(ctx, http.MethodPut, "api/token", opMetadataAuth, http.Header{tokenAge: {tokenSeconds}})
		if tokenErr != nil {
			return "", errors.Join(err, tokenErr)
		}
		value, _, err = s.askMetadata(ctx, http.MethodGet, "meta-data/"+field, opMetadata, http.Header{tokenHeader: {token}})
	}
	return value, err
}

// askMetadata asks the metadata service, of which nothing is changed by any method.
func (s *session) askMetadata(ctx context.Context, method, path, operation string, header http.Header) (value string, status int, err error) {
	err = s.Server.ReadOperation(ctx, operation, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, metadataTimeout)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, method, "http://"+metadataHost+"/latest/"+path, nil)
		if err != nil {
			return err
		}
		for name, values := range header {
			req.Header.Set(name, values[0])
		}
		resp, refused := outside.Exchange(s.Network, req)
		if resp == nil {
			return refused
		}
		defer resp.Body.Close()
		status = resp.StatusCode
		if resp.StatusCode != http.StatusOK {
			return cmp.Or(refused, errors.New("it is no value"))
		}
		text, err := io.ReadAll(io.LimitReader(resp.Body, maxMetadata))
		if value = strings.TrimSpace(string(text)); err == nil && value == "" {
			return errors.New("the answer is empty")
		}
		return err
	})
	return value, status, err
}
